//! `smart`: the health records of devices, from `smartctl --json` (smartmontools, smartctl(8)).
//!
//! The sensor asks NVMe devices and SCSI or ATA disks (`nvme*`, `sd*`), one after the other, every
//! few minutes, and does not wake up a disk that sleeps (`-n standby`). smartctl needs root, or
//! `CAP_SYS_RAWIO` and, for NVMe, `CAP_SYS_ADMIN`. It waits for the device, so it has a timeout. If
//! it hangs it is killed, counted (`read_errors_total`) and reported as a skip.
//!
//! The exit code of smartctl is a set of bits. The lowest two mean that there is no answer. All
//! others describe the device (such as 8, "it is failing") or mean that a part of the answer is
//! missing; then the answer is used. A tick allocates, since it runs programs.

mod health;
mod attributes;

use std::io;
use std::process::Command;
use std::time::Duration;

use serde_json::Value as Json;
use skopos_model::schema::Family;
use skopos_model::schema::smart::{self, *};

use crate::disk;
use crate::instances::{Instance, Instances};
use crate::program::{self, Failed, Lingering};
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use attributes::{Counts, attributes};
use health::Health;

/// The most devices that are asked: a server full of disks.
const MAX_DEVICES: usize = 128;

/// Health changes over days. A check every few minutes shows a failure soon enough, and hardly
/// disturbs the device.
const INTERVAL: Duration = Duration::from_secs(300);

/// The time of a poll besides its programs: listing and parsing, on a busy machine.
const MARGIN: Duration = Duration::from_secs(5);

/// The whole answer of a disk with full logs is about 100 KB.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// The most characters that are kept of a message of smartctl.
const MAX_MESSAGE: usize = 200;

/// No answer: wrong arguments (1), or the device could not be opened or sleeps (2).
const NO_ANSWER: i32 = 3;

pub(crate) struct Smart {
    root: Root,
    /// The state of a device: the number of failed attempts, and the reason for no answer.
    known: Instances<Failures>,
    unanswered: Vec<Skip>,
    lingering: Lingering,
}

#[derive(Default)]
struct Failures {
    count: u64,
}

/// The result of asking one device.
enum Answer {
    Health(Box<Health>, Box<Json>),
    /// It sleeps. Its last facts still hold.
    Asleep,
    /// It does not keep health records that smartctl can read, or may not be asked. Nothing is
    /// broken.
    Unavailable(String),
    /// The program failed.
    Broken(String),
}

impl Smart {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        if candidates(root).is_empty() {
            return Err(Skip::new(
                "smart",
                "this machine has neither an NVMe device nor a disk with health records",
            ));
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
                    "there is no program `{}`; install smartmontools to see wear and failing disks",
                    root.smartctl.display()
                );
                return Err(Skip::new("smart", reason));
            }
            Err(e) => {
                return Err(Skip::new("smart", format!("{} {e}", root.smartctl.display())));
            }
        }
        let known = Instances::new(&smart::FAMILY, MAX_DEVICES);
        Ok(Self { root: root.clone(), known, unanswered: Vec::new(), lingering })
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
            Ok(outcome) => answer(&outcome.output, outcome.status.code()),
            Err(e) => Answer::Broken(format!("smartctl {e}")),
        }
    }
}

/// The number of stuck programs at which no more are started.
const MAX_LINGERING: usize = 4;

/// Returns the devices to ask.
fn candidates(root: &Root) -> Vec<String> {
    let names = disk::names_in(&root.sys.join("block")).into_iter();
    // The kernel lists each path of a device with two paths as well, hidden.
    let is_hidden = |name: &str| {
        disk::number_of(&disk::folder(root, name).join("hidden")).is_some_and(|hidden| hidden != 0)
    };
    let is_asked =
        |name: &String| matches!(disk::kind(name, false), "nvme" | "ssd") && !is_hidden(name);
    names.filter(is_asked).take(MAX_DEVICES).collect()
}

fn answer(output: &[u8], code: Option<i32>) -> Answer {
    let Some(code) = code else {
        return Answer::Broken("smartctl was killed".to_owned());
    };
    let json: Json = match serde_json::from_slice(output) {
        Ok(json) => json,
        Err(e) => {
            return Answer::Broken(format!("smartctl (exit code {code}) did not print JSON: {e}"));
        }
    };
    if code & NO_ANSWER != 0 {
        let message = message(&json);
        let is_asleep = ["STANDBY", "SLEEP"].iter().any(|mode| message.contains(mode));
        return match is_asleep {
            true => Answer::Asleep,
            false => Answer::Unavailable(format!(
                "smartctl gave no answer (exit code {code}): {message}"
            )),
        };
    }
    match Health::of(&json) {
        Some(health) => Answer::Health(Box::new(health), Box::new(json)),
        None => Answer::Unavailable(format!(
            "smartctl reports no health records (exit code {code}): {}",
            message(&json)
        )),
    }
}

/// Returns the messages that smartctl prints for people.
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
        self.unanswered.clear();
        self.known.begin();
        for name in candidates(&self.root) {
            let answer = self.ask(&name);
            let Some(device) = self.known.see(tick.sink, name.as_bytes(), Failures::default) else {
                continue;
            };
            match answer {
                Answer::Health(health, json) => {
                    set_facts(device, tick, &health);
                    set_attributes(device, tick, &json);
                }
                Answer::Asleep => {}
                Answer::Unavailable(reason) => {
                    self.unanswered.push(Skip::new(format!("smart/{name}"), reason));
                }
                Answer::Broken(reason) => {
                    device.state.count += 1;
                    broken.get_or_insert_with(|| format!("{name}: {reason}"));
                    self.unanswered.push(Skip::new(format!("smart/{name}"), reason));
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

    /// Each device may use up its timeout.
    fn patience(&self) -> Duration {
        // At most `MAX_DEVICES`, so it fits.
        let devices = candidates(&self.root).len() as u32;
        program::longest(self.root.patience) * devices + MARGIN
    }

    fn skips(&self) -> Vec<Skip> {
        self.unanswered.iter().cloned().chain(self.known.skips()).collect()
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

fn set_attributes(device: &mut Instance<Failures>, tick: &mut Tick<'_>, json: &Json) {
    let counts = Counts::of(json);
    for (metric, value) in [
        (&PROGRAM_FAILURES_TOTAL, counts.program_failures),
        (&ERASE_FAILURES_TOTAL, counts.erase_failures),
        (&ERASE_CYCLES_TOTAL, counts.erase_cycles),
        (&REALLOCATED_SECTORS, counts.reallocated),
        (&PENDING_SECTORS, counts.pending),
        (&UNCORRECTABLE_SECTORS, counts.uncorrectable),
        (&CORRECTED_ERRORS_TOTAL, counts.corrected),
        (&LINK_ERRORS_TOTAL, counts.link_errors),
        (&COMMAND_TIMEOUTS_TOTAL, counts.command_timeouts),
        (&ERROR_LOG_ENTRIES_TOTAL, counts.log_entries),
        (&CONTROLLER_BUSY_SECONDS_TOTAL, counts.busy_seconds),
        (&WARNING_TEMPERATURE_SECONDS_TOTAL, counts.warm_seconds),
        (&CRITICAL_TEMPERATURE_SECONDS_TOTAL, counts.hot_seconds),
    ] {
        device.set_or_unset(tick, metric, value);
    }
    if let Some((list, left_out)) = attributes(json) {
        device.set_structured(tick, &ATTRIBUTES, &list);
        device.set(tick, &ATTRIBUTES_LEFT_OUT, left_out);
    }
}
