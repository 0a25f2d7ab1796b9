//! NVIDIA's management library, if it is installed: reports the processes with a context on each
//! GPU, and the memory that they hold there. If an administrator has enabled accounting, also of
//! exited processes.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use skopos_model::task::Completeness;

use super::{Launch, Mechanism, Sample};
use crate::ledger::{Ledger, Offer};
use crate::sys::nvml::{Device, Library};
use crate::sys::{Event, Pid};

/// The name in reports.
pub(crate) const NAME: &str = "nvml";

/// The driver's library, in any version.
pub(crate) const LIBRARY: &CStr = c"libnvidia-ml.so.1";

/// The most exited processes that are looked up in the accounts, which hold 4,000: 1 MB of ids.
/// Later ones are not looked up.
const MAX_ENDED: usize = 65_536;

/// NVML's value for an unknown number.
const NOT_KNOWN: u64 = u64::MAX;

/// The most by which the driver's clock and ours may differ.
const CLOCK_MICROS: u64 = 1_000_000;

pub(crate) struct Nvml {
    name: CString,
    library: Option<Library>,
    devices: Vec<Gpu>,
    /// Exited processes of the task.
    ended: HashSet<u32>,
    used_bytes_max: u64,
    /// The start of the task, in microseconds of UNIX time.
    start_micros: u64,
}

struct Gpu {
    device: Device,
    accounts: bool,
    /// True if a process of the task had a context on it.
    is_used: bool,
    /// The greatest peak of one process, from the accounts.
    accounted_bytes: u64,
}

impl Nvml {
    pub(crate) fn new(name: &CStr) -> Self {
        Self {
            name: name.to_owned(),
            library: None,
            devices: Vec::new(),
            ended: HashSet::new(),
            used_bytes_max: 0,
            start_micros: 0,
        }
    }

    fn ask_accounts(&mut self) {
        let Some(library) = &self.library else { return };
        let since = self.start_micros.saturating_sub(CLOCK_MICROS);
        for gpu in self.devices.iter_mut().filter(|gpu| gpu.accounts) {
            for stats in library.accounted(gpu.device, |pid| self.ended.contains(&pid)) {
                // An account from before the task belongs to another process with the same id.
                if stats.start_micros < since {
                    continue;
                }
                gpu.is_used = true;
                if stats.used_bytes_max != NOT_KNOWN {
                    gpu.accounted_bytes = gpu.accounted_bytes.max(stats.used_bytes_max);
                }
            }
        }
    }
}

impl Mechanism for Nvml {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn prepare(&mut self, _launch: &mut Launch) -> io::Result<()> {
        self.library = Some(Library::load(&self.name).map_err(io::Error::other)?);
        Ok(())
    }

    /// The driver opens descriptors after the task was forked, so the task does not inherit them.
    fn attach(&mut self, _root: Pid, _ledger: &mut Ledger) -> io::Result<()> {
        let Some(library) = &mut self.library else { return Ok(()) };
        let devices = library.devices().map_err(io::Error::other)?;
        if devices.is_empty() {
            return Err(io::Error::other("the driver shows no GPU to this user"));
        }
        for device in devices {
            let accounts = library.accounts(device);
            self.devices.push(Gpu { device, accounts, is_used: false, accounted_bytes: 0 });
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.start_micros = u64::try_from(now.as_micros()).unwrap_or(0);
        Ok(())
    }

    fn event(&mut self, event: &Event, _ledger: &mut Ledger) {
        if let Event::Ended { pid, .. } = event
            && self.ended.len() < MAX_ENDED
        {
            self.ended.insert(pid.unsigned_abs());
        }
    }

    fn sample(&mut self, _now: &mut Sample, ledger: &mut Ledger) {
        let Some(library) = &self.library else { return };
        let mut used_bytes = 0;
        for gpu in &mut self.devices {
            let running = library.running(gpu.device).unwrap_or_default();
            for one in running.iter().filter(|one| ledger.contains(one.pid as Pid)) {
                gpu.is_used = true;
                if one.used_bytes != NOT_KNOWN {
                    used_bytes += one.used_bytes;
                }
            }
        }
        self.used_bytes_max = self.used_bytes_max.max(used_bytes);
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        self.ask_accounts();
        let gpus = self.devices.iter().filter(|gpu| gpu.is_used).count();
        let all_account = self.devices.iter().all(|gpu| gpu.accounts);
        let (completeness, reason) = if all_account {
            (
                Completeness::AtLeast,
                "for processes whose exit was observed, from the driver's accounts",
            )
        } else {
            (Completeness::Sampled, "sampled, because accounting is off (`nvidia-smi -am 1`)")
        };
        // One process held at least that much, independent of the samples.
        let accounted = self.devices.iter().map(|gpu| gpu.accounted_bytes).max().unwrap_or(0);
        let bytes = self.used_bytes_max.max(accounted);
        for (name, value) in [("gpus", gpus as f64), ("gpu_bytes_max", bytes as f64)] {
            let reason = Some(reason.to_owned());
            let offer = Offer { method: NAME, value, completeness, error_bound: None, reason };
            ledger.offers.add(name, offer);
        }
        self.library = None;
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::sys::Status;

    /// Two GPUs with accounting and one without. On the first one process 4242 runs with 3 GiB; on
    /// the second one 4243 has exited with 5 GiB, and 4244 had exited long before.
    const FAKE: &str = r#"
#include <string.h>
struct info { unsigned pid; unsigned long long used; unsigned a, b; };
struct stats { unsigned g, m; unsigned long long max, time, start; unsigned running, reserved[5]; };
typedef char *dev;
static char devices[3];
static int begun;
int nvmlInit_v2(void) { begun = 1; return 0; }
int nvmlShutdown(void) { begun = 0; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { if (!begun) return 1; *n = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, dev *d) { *d = devices + i; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(dev d, unsigned *n, struct info *infos) {
    if (d != devices) { *n = 0; return 0; }
    infos[0] = (struct info){4242, 3ull << 30, 0, 0}; infos[1] = (struct info){1, 1ull << 40, 0, 0};
    *n = 2; return 0;
}
int nvmlDeviceGetAccountingMode(dev d, unsigned *mode) { *mode = d != devices + 2; return 0; }
int nvmlDeviceGetAccountingPids(dev d, unsigned *n, unsigned *pids) {
    if (d != devices + 1) { *n = 0; return 0; }
    pids[0] = 4243; pids[1] = 4244; pids[2] = 7; *n = 3; return 0;
}
int nvmlDeviceGetAccountingStats(dev d, unsigned pid, struct stats *s) {
    if (d != devices + 1) return 6;
    memset(s, 0, sizeof *s); s->max = pid == 4243 ? 5ull << 30 : 9ull << 30;
    s->start = pid == 4243 ? ~0ull - 1 : 1; return 0;
}
"#;

    fn fake(folder: &std::path::Path, count: u32) -> Option<CString> {
        let (source, library) = (folder.join("nvml.c"), folder.join(format!("nvml{count}.so")));
        std::fs::write(&source, FAKE).expect("written");
        let define = format!("-DCOUNT={count}");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", &define, "-o"])
            .args([&library, &source])
            .status()
            .ok()?;
        assert!(status.success(), "it compiles");
        Some(CString::new(library.to_str()?).expect("a path"))
    }

    #[test]
    fn gpus_count_if_a_process_of_the_task_is_or_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let check = |count, ended: &[Pid]| {
            let name = fake(folder.path(), count)?;
            let (mut nvml, mut ledger) = (Nvml::new(&name), Ledger::new());
            nvml.prepare(&mut Launch::default()).expect("it is there");
            nvml.attach(1, &mut ledger).expect("it answers");
            ledger.process_started(4242, 1);
            nvml.sample(&mut Sample::default(), &mut ledger);
            for &pid in ended {
                nvml.event(&Event::Ended { pid, status: Status::Exited(0) }, &mut ledger);
            }
            nvml.finish(&mut ledger);
            let gpus = ledger.offers.best("gpus", "");
            let bytes = ledger.offers.best("gpu_bytes_max", "").value.map(|bytes| bytes / 1e9);
            Some((gpus.value, bytes.map(f64::round), gpus.completeness))
        };
        let Some(found) = check(2, &[4243, 4244]) else { return };
        assert_eq!(found, (Some(2.0), Some(5.0), Completeness::AtLeast));
        assert_eq!(check(2, &[]), Some((Some(1.0), Some(3.0), Completeness::AtLeast)));
        assert_eq!(check(3, &[4243]), Some((Some(2.0), Some(5.0), Completeness::Sampled)));
    }

    #[test]
    fn a_missing_library_is_reported() {
        let mut nvml = Nvml::new(c"libno-such-library.so.1");
        let error = nvml.prepare(&mut Launch::default()).expect_err("there is none");
        assert_eq!(error.to_string(), "libno-such-library.so.1 is not installed");
    }
}
