//! `smart`: health that devices keep themselves, from `smartctl --json` (smartmontools, smartctl(8)).
//!
//! Asked are NVMe devices and SCSI or ATA disks (`nvme*`, `sd*`), one after the other, every few
//! minutes, and without waking up a disk that sleeps (`-n standby`). smartctl needs root, or
//! `CAP_SYS_RAWIO` and, for NVMe, `CAP_SYS_ADMIN`. It waits for the device, so it gets a time; one
//! that hangs is killed, counted (`read_errors_total`) and told as a skip.
//!
//! Its exit code is a set of bits. The lowest two say that there is no answer; all others say
//! something about the device (such as 8, "it is failing") or that a part of the answer is missing,
//! and the answer is taken. A tick allocates, as it runs programs.

mod health;

use std::io;
use std::process::Command;
use std::time::Duration;

use serde_json::Value as Json;
use skopos_model::schema::Family;
use skopos_model::schema::smart::{self, *};

use crate::instances::{Instance, Instances};
use crate::program::{self, Failed, Lingering};
use crate::{Root, Sensor, Skip, Tick, disk};
use health::Health;

/// The most devices that are asked: a server full of disks.
const MAX_DEVICES: usize = 128;

/// Health changes in days; a look every few minutes shows a failure soon enough and keeps no device
/// from its work.
const INTERVAL: Duration = Duration::from_secs(300);

/// What a poll may take besides its programs: lists and parsing, on a machine that is busy.
const MARGIN: Duration = Duration::from_secs(5);

/// The whole answer of a disk with full logs is about 100 KB.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// The most characters of a message of smartctl that are told.
const MAX_MESSAGE: usize = 200;

/// No answer: wrong arguments (1), or the device could not be opened or sleeps (2).
const NO_ANSWER: i32 = 3;

pub(crate) struct Smart {
    root: Root,
    /// What is kept of a device: how often it gave no answer, and why there is none.
    known: Instances<Failures>,
    untold: Vec<Skip>,
    lingering: Lingering,
}

#[derive(Default)]
struct Failures {
    count: u64,
}

/// What asking one device came to.
enum Answer {
    Health(Box<Health>),
    /// It sleeps; what was known still holds.
    Asleep,
    /// It keeps no health that smartctl can read, or may not be asked. Nothing is broken.
    None(String),
    /// The program failed.
    Broken(String),
}

impl Smart {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        if candidates(root).is_empty() {
            return Err(Skip::new("smart", "no NVMe device and no disk that keeps health records"));
        }
        let mut lingering = Lingering::default();
        let mut version = Command::new(&root.smartctl);
        match program::run(
            version.arg("--version"),
            root.patience,
            MAX_OUTPUT_BYTES,
            &mut lingering,
        ) {
            Ok(_) => {}
            Err(Failed::Start(e)) if e.kind() == io::ErrorKind::NotFound => {
                let reason = format!(
                    "no program `{}`: install smartmontools to learn about wear and failing disks",
                    root.smartctl.display()
                );
                return Err(Skip::new("smart", reason));
            }
            Err(e) => {
                return Err(Skip::new("smart", format!("{} {e}", root.smartctl.display())));
            }
        }
        let known = Instances::new(&smart::FAMILY, MAX_DEVICES);
        Ok(Self { root: root.clone(), known, untold: Vec::new(), lingering })
    }

    fn ask(&mut self, name: &str) -> Answer {
        if self.lingering.reap() >= MAX_LINGERING {
            return Answer::Broken("programs that were killed are stuck in the kernel".to_owned());
        }
        let mut command = Command::new(&self.root.smartctl);
        command.args(["--json=c", "--all", "--nocheck=standby"]).env("LC_ALL", "C");
        command.arg(self.root.dev.join(name));
        match program::run(&mut command, self.root.patience, MAX_OUTPUT_BYTES, &mut self.lingering)
        {
            Ok(ran) => answer(&ran.output, ran.status.code()),
            Err(e) => Answer::Broken(format!("smartctl {e}")),
        }
    }
}

/// How many killed programs may be stuck before no more are started.
const MAX_LINGERING: usize = 4;

/// The devices to ask.
fn candidates(root: &Root) -> Vec<String> {
    let names = disk::names_in(&root.sys.join("block")).into_iter();
    // Of a device with two paths the kernel lists each path as well, hidden.
    let is_hidden = |name: &str| {
        disk::number_of(&disk::folder(root, name).join("hidden")).is_some_and(|hidden| hidden != 0)
    };
    let keeps_health =
        |name: &String| matches!(disk::kind(name, false), "nvme" | "ssd") && !is_hidden(name);
    names.filter(keeps_health).take(MAX_DEVICES).collect()
}

fn answer(output: &[u8], code: Option<i32>) -> Answer {
    let Some(code) = code else {
        return Answer::Broken("smartctl was killed".to_owned());
    };
    let json: Json = match serde_json::from_slice(output) {
        Ok(json) => json,
        Err(e) => {
            return Answer::Broken(format!("smartctl (exit code {code}) printed no JSON: {e}"));
        }
    };
    if code & NO_ANSWER != 0 {
        let message = message(&json);
        let is_asleep = ["STANDBY", "SLEEP"].iter().any(|mode| message.contains(mode));
        return match is_asleep {
            true => Answer::Asleep,
            false => {
                Answer::None(format!("smartctl gives no answer (exit code {code}): {message}"))
            }
        };
    }
    match Health::of(&json) {
        Some(health) => Answer::Health(Box::new(health)),
        None => Answer::None(format!("it tells no health (exit code {code}): {}", message(&json))),
    }
}

/// What smartctl says to people.
fn message(json: &Json) -> String {
    let messages = json.pointer("/smartctl/messages").and_then(Json::as_array);
    let texts = messages.into_iter().flatten().filter_map(|m| m.get("string")?.as_str());
    let message: String = texts.collect::<Vec<_>>().join("; ").chars().take(MAX_MESSAGE).collect();
    if message.is_empty() { "no message".to_owned() } else { message }
}

impl Sensor for Smart {
    fn family(&self) -> &'static Family {
        &smart::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let mut broken = None;
        self.untold.clear();
        self.known.begin();
        for name in candidates(&self.root) {
            let answer = self.ask(&name);
            let Some(device) = self.known.see(tick.sink, name.as_bytes(), Failures::default) else {
                continue;
            };
            match answer {
                Answer::Health(health) => set_facts(device, tick, &health),
                Answer::Asleep => {}
                Answer::None(reason) => {
                    self.untold.push(Skip::new(format!("smart/{name}"), reason));
                }
                Answer::Broken(reason) => {
                    device.state.count += 1;
                    broken.get_or_insert_with(|| format!("{name}: {reason}"));
                    self.untold.push(Skip::new(format!("smart/{name}"), reason));
                }
            }
            let count = device.state.count;
            device.set(tick, &READ_ERRORS_TOTAL, count);
        }
        self.known.end(tick.sink);
        broken.map_or(Ok(()), |reason| Err(io::Error::other(reason)))
    }

    fn interval_hint(&self) -> Option<Duration> {
        Some(INTERVAL)
    }

    fn may_block(&self) -> bool {
        true
    }

    /// One device after the other may use up its time.
    fn patience(&self) -> Duration {
        // At most `MAX_DEVICES`, so it fits.
        let devices = candidates(&self.root).len() as u32;
        program::longest(self.root.patience) * devices + MARGIN
    }

    fn skips(&self) -> Vec<Skip> {
        self.untold.iter().cloned().chain(self.known.skips()).collect()
    }
}

fn set_facts(device: &mut Instance<Failures>, tick: &mut Tick<'_>, health: &Health) {
    for (metric, value) in [
        (&PASSED, health.passed.map(u64::from)),
        (&CRITICAL_WARNING, health.critical_warning),
        (&MEDIA_ERRORS_TOTAL, health.media_errors),
        (&BAD_BLOCKS, health.bad_blocks),
        (&TOTAL_BLOCKS, health.total_blocks),
        (&BLOCK_BYTES, health.block_bytes),
        (&DATA_READ_BYTES_TOTAL, health.read_bytes),
        (&DATA_WRITTEN_BYTES_TOTAL, health.written_bytes),
        (&POWER_ON_SECONDS_TOTAL, health.power_on_seconds),
        (&POWER_CYCLES_TOTAL, health.power_cycles),
        (&UNSAFE_SHUTDOWNS_TOTAL, health.unsafe_shutdowns),
    ] {
        device.set_or_unset(tick, metric, value);
    }
    for (metric, value) in [
        (&ENDURANCE_USED_RATIO, health.endurance_used),
        (&AVAILABLE_SPARE_RATIO, health.available_spare),
        (&SPARE_THRESHOLD_RATIO, health.spare_threshold),
        (&TEMPERATURE_CELSIUS, health.temperature),
    ] {
        device.set_or_unset(tick, metric, value);
    }
}
