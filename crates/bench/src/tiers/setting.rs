//! The tiers, the calibration of their devices, and the agent that watches them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use skopos_model::SplitMix64;
use skopos_net::lab::Lab;
use skopos_steer::tiers::TierSpec;

use super::live::Live;
use super::names::{NODE, POLL, RATES};
use crate::agent::usage::Meter;
use crate::child::{Process, finish, not_started, wait_for};
use crate::ending;
use crate::outcome::Outcome;
use crate::programs;
use crate::scratch::Scratch;

/// A disk of the lab: its name, its size in MB beyond that of its tier, its rate in MB/s, and its seek in ms.
struct Disk {
    name: &'static str,
    capacity_mb: u32,
    rate_mb: u32,
    seek_ms: f64,
}

/// NVMe, a shared burst buffer, three equal ones, and the parallel file system. The paper has 96 GB and 1 TB; the last disk
/// holds all data.
const DISKS: [Disk; 6] = [
    Disk { name: FAST, capacity_mb: 10, rate_mb: 300, seek_ms: 0.0 },
    Disk { name: SHARED, capacity_mb: 100, rate_mb: 150, seek_ms: 0.1 },
    Disk { name: EQUAL[0], capacity_mb: 60, rate_mb: 150, seek_ms: 0.1 },
    Disk { name: EQUAL[1], capacity_mb: 60, rate_mb: 150, seek_ms: 0.1 },
    Disk { name: EQUAL[2], capacity_mb: 60, rate_mb: 150, seek_ms: 0.1 },
    Disk { name: SLOW, capacity_mb: 400, rate_mb: 50, seek_ms: 4.0 },
];
pub(super) const MEMORY: &str = "memory";
pub(super) const FAST: &str = "fast";
pub(super) const SHARED: &str = "shared";
pub(super) const EQUAL: [&str; 3] = ["shared1", "shared2", "shared3"];
pub(super) const SLOW: &str = "slow";

/// Space of a disk for its journal, for other programs and for the file of a calibration.
const SPARE_MB: u32 = 60;
/// Longest time of the agent's start, and of a calibration.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that processes write, which no file system can compress.
const NOISE_BYTES: usize = 16 << 20;

/// The tiers of all hierarchies.
pub(super) struct Setting {
    // In the order of their end: the agent first, the lab behind all that reads its disks.
    agent: Process,
    dir: PathBuf,
    lab: Lab,
    memory: Scratch,
    /// Bytes a second of a write to memory, with all that an engine does.
    memory_speed: f64,
    pub(super) noise: Vec<u8>,
}

impl Setting {
    pub(super) fn new() -> Outcome<Self> {
        let memory = Scratch::new().map_err(|f| f.in_one_line())?;
        let mut text = format!("name = 'tiers{}'\n[[host]]\nname = 'a'\n", std::process::id());
        for Disk { name, capacity_mb, rate_mb, seek_ms } in DISKS {
            let size = capacity_mb + SPARE_MB;
            text += &format!(
                "[[disk]]\nname = '{name}'\nhost = 'a'\nsize_mb = {size}\nrate_mb = {rate_mb}\nseek_ms = {seek_ms:?}\n"
            );
        }
        let lab = ending::lab(&text)?;
        let state = memory.dir("state").map_err(|f| f.in_one_line())?;
        for Disk { name, .. } in &DISKS {
            calibrate(&lab.disk(name)?, &state, memory.path())?;
        }
        let dir = memory.dir("agent").map_err(|f| f.in_one_line())?;
        let agent = start_agent(&lab, memory.path(), &dir, &state)?;
        let mut random = SplitMix64::new(17);
        let noise: Vec<u8> =
            (0..NOISE_BYTES / 8).flat_map(|_| random.bits().to_le_bytes()).collect();
        let memory_speed = speed_of(memory.path(), &noise)?;
        Ok(Self { agent, dir, lab, memory, memory_speed, noise })
    }

    /// The folder of a tier, without the part of one run.
    pub(super) fn root(&self, tier: &str) -> Outcome<PathBuf> {
        if tier == MEMORY { Ok(self.memory.path().to_owned()) } else { Ok(self.lab.disk(tier)?) }
    }

    /// A tier of a run.
    pub(super) fn tier(&self, name: &str, folder: &str, capacity_bytes: u64) -> Outcome<TierSpec> {
        Ok(TierSpec::new(name, self.root(name)?.join(folder), capacity_bytes))
    }

    /// A reader of the facts of some tiers, which waits until they are known.
    pub(super) fn live(&self, tiers: &[TierSpec]) -> Outcome<Live> {
        let mut devices = Vec::new();
        for tier in tiers {
            let is_disk = tier.name != MEMORY;
            devices.push(if is_disk {
                Some(device_of(&self.lab.disk(&tier.name)?)?)
            } else {
                None
            });
        }
        Live::open(&self.dir, tiers, &devices, self.memory_speed, PATIENCE)
    }

    /// A meter of the agent.
    pub(super) fn meter(&self) -> Meter {
        Meter::start(vec![self.agent.pid()])
    }

    /// The rate of memory in MB/s, for notes.
    pub(super) fn memory_mb(&self) -> f64 {
        self.memory_speed / 1e6
    }

    /// The disks in words, for notes.
    pub(super) fn disks(&self) -> String {
        let words =
            |d: &Disk| format!("{} {} MB/s with seeks of {} ms", d.name, d.rate_mb, d.seek_ms);
        DISKS.iter().map(words).collect::<Vec<_>>().join(", ")
    }
}

/// Measures a device with `skopos calibrate`, as a user would do it, but for a shorter time.
fn calibrate(folder: &Path, state: &Path, scratch: &Path) -> Outcome<()> {
    let mut command = Command::new(programs::skopos().map_err(|f| f.in_one_line())?);
    command.arg("calibrate").arg(folder);
    command.args(["--size", "16MiB", "--seconds", "0.4", "--runs", "3", "--yes"]);
    command.env("SKOPOS_STATE", state);
    finish(&mut command, scratch, PATIENCE)?;
    Ok(())
}

fn start_agent(lab: &Lab, scratch: &Path, dir: &Path, state: &Path) -> Outcome<Process> {
    let mut tiers = String::new();
    if scratch.starts_with("/dev/shm") {
        tiers += &format!("[[tier]]\nname = '{MEMORY}'\nmounts = ['/dev/shm']\n");
    }
    for Disk { name, .. } in &DISKS {
        let mount = lab.disk(name)?;
        tiers += &format!("[[tier]]\nname = '{name}'\nmounts = ['{}']\n", mount.display());
    }
    fs::write(scratch.join("tiers.toml"), tiers)?;
    let mut insights = String::new();
    for Disk { name, .. } in &DISKS {
        let device = device_of(&lab.disk(name)?)?;
        for (metric, counter) in RATES {
            insights += &format!(
                "[[insight]]\nname = '{name}/{metric}'\n\
                 sql = \"SELECT rate(value) FROM latest WHERE topic = '{NODE}/block/{device}/{counter}'\"\n"
            );
        }
    }
    let (config, poll) = (scratch.join("agent.toml"), POLL.as_secs_f64());
    fs::write(
        &config,
        format!(
            "tiers = 'tiers.toml'\n[agent]\nnode = '{NODE}'\ninterval = '{poll}s'\nbudget = '10%'\n\
             [sensors.default]\npolicy = 'fixed'\nmin_seconds = 1\n\
             [sensors.block]\npolicy = 'fixed'\nmin_seconds = {poll}\n\
             [sensors.fs]\npolicy = 'fixed'\nmin_seconds = {poll}\n{insights}"
        ),
    )?;
    let mut command = Command::new(programs::agent().map_err(|f| f.in_one_line())?);
    command.arg("--config").arg(&config).arg("--dir").arg(dir);
    command.env("SKOPOS_STATE", state).env_remove(skopos_shm::DIR_VARIABLE);
    let log = scratch.join("agent.log");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log)?);
    let started = Process::start(&mut command).map_err(|e| not_started("skopos-agent", &e));
    let mut agent = started?;
    let ready = wait_for(&mut agent, PATIENCE, || {
        let host = skopos_shm::Host::open_dirs(vec![dir.to_owned()]).ok()?;
        (!host.segments().is_empty()).then_some(())
    });
    ready
        .map_err(|why| format!("{why}: {}", fs::read_to_string(&log).unwrap_or_default().trim()))?;
    Ok(agent)
}

/// Returns the name of the device that is mounted at a folder.
fn device_of(folder: &Path) -> Outcome<String> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mounted = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let device = words.next()?.strip_prefix("/dev/")?;
        (Path::new(words.next()?) == folder).then(|| device.to_owned())
    });
    mounted.ok_or_else(|| format!("no device is mounted at {}", folder.display()).into())
}

/// Measures writes of files to a folder in memory, in bytes a second.
fn speed_of(folder: &Path, noise: &[u8]) -> Outcome<f64> {
    let path = folder.join("speed");
    let begun = Instant::now();
    for part in noise.chunks(1 << 20) {
        fs::write(&path, part)?;
        fs::remove_file(&path)?;
    }
    Ok(noise.len() as f64 / begun.elapsed().as_secs_f64())
}
