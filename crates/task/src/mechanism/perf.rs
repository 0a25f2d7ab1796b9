//! `perf_event_open`: counters of the kernel for the first process, inherited by all processes that
//! it starts, so they include processes that no parent waits for. They count hardware events if the
//! machine has them, and processor time and faults everywhere.
//!
//! Counting starts at exec and stops shortly before the exit, and page faults are those that the
//! processor raised: for a process of a millisecond the counts are up to a fifth below those of
//! `wait4`. Each counter makes each process start slower, so counters are used on request. On a
//! virtual machine hardware counters also make each thread switch slower, because the hypervisor
//! sets them (input and output that waits for a disk takes twice as long), so there they have to be
//! named.

use std::fs;
use std::io;

use skopos_model::task::Completeness;

use super::Mechanism;
use super::reasons::still_running;
use crate::ledger::{Ledger, Offer};
use crate::sys::Pid;
use crate::sys::perf::{Count, Counter, Kind};

/// The name in reports.
pub(crate) const NAME: &str = "perf";

/// The share of the time above which a counter counts as always running. Below it the value is
/// scaled, and not exact.
const ALL_THE_TIME: f64 = 0.999_999;

/// The counter of a resource.
struct CounterSpec {
    resource: &'static str,
    kind: Kind,
}

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const TASK_CLOCK: Kind = Kind(SOFTWARE, 1);

const COUNTERS: [CounterSpec; 5] = [
    CounterSpec { resource: "cpu_seconds", kind: TASK_CLOCK },
    CounterSpec { resource: "minor_faults", kind: Kind(SOFTWARE, 5) },
    CounterSpec { resource: "major_faults", kind: Kind(SOFTWARE, 6) },
    CounterSpec { resource: "cycles", kind: Kind(HARDWARE, 0) },
    CounterSpec { resource: "instructions", kind: Kind(HARDWARE, 1) },
];

/// The reason why hardware counters are not used.
pub(crate) const VIRTUAL: &str = "on a virtual machine hardware counters make thread switches \
                                  expensive: name `perf` to use them";

pub(crate) struct Perf {
    /// True if hardware counters are used too.
    with_hardware: bool,
    counters: Vec<(&'static CounterSpec, Counter)>,
    refused: Vec<(&'static str, String)>,
    with_kernel: bool,
}

impl Perf {
    pub(crate) fn new(with_hardware: bool) -> Self {
        Self { with_hardware, counters: Vec::new(), refused: Vec::new(), with_kernel: true }
    }
}

/// Checks whether this user may open counters.
pub(crate) fn may_count() -> Result<(), String> {
    let path = "/proc/sys/kernel/perf_event_paranoid";
    let text = fs::read_to_string(path).map_err(|_| "the kernel has no performance counters")?;
    match text.trim().parse::<i32>() {
        Ok(level) if level > 2 && !rustix::process::geteuid().is_root() => Err(format!(
            "kernel.perf_event_paranoid is {level}: only administrators may use counters"
        )),
        _ => Ok(()),
    }
}

/// True if this machine is virtual, according to its processor flags.
pub(crate) fn is_virtual() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| has_hypervisor_flag(&text))
}

fn has_hypervisor_flag(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

impl Mechanism for Perf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Err("processes that are already running do not inherit a counter")
    }

    fn attach(&mut self, root: Pid, _ledger: &mut Ledger) -> io::Result<()> {
        // If `perf_event_paranoid` is 2, only administrators may count events in the kernel.
        self.with_kernel = Counter::open(TASK_CLOCK, root, true).is_ok();
        for spec in &COUNTERS {
            if spec.kind.0 == HARDWARE && !self.with_hardware {
                self.refused.push((spec.resource, VIRTUAL.to_owned()));
                continue;
            }
            match Counter::open(spec.kind, root, self.with_kernel) {
                Ok(counter) => self.counters.push((spec, counter)),
                Err(e) => self.refused.push((spec.resource, why(&e))),
            }
        }
        match self.refused.first() {
            Some((_, why)) if self.counters.is_empty() => Err(io::Error::other(why.clone())),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        for (resource, why) in self.refused.drain(..) {
            ledger.offers.mark_unavailable(resource, why);
        }
        let left = ledger.live_pids().len();
        for (spec, mut counter) in self.counters.drain(..) {
            let Ok(count) = counter.read() else { continue };
            if let Some(offer) = offer(spec, count, self.with_kernel, left) {
                ledger.offers.add(spec.resource, offer);
            }
        }
    }
}

fn offer(spec: &CounterSpec, count: Count, with_kernel: bool, left: usize) -> Option<Offer> {
    let Count { value, enabled_nanos, running_nanos } = count;
    let share = running_nanos as f64 / enabled_nanos as f64;
    let is_shared = enabled_nanos > 0 && share < ALL_THE_TIME;
    if is_shared && running_nanos == 0 {
        return None;
    }
    let value = if is_shared { value as f64 / share } else { value as f64 };
    let value = if spec.kind == TASK_CLOCK { value / 1e9 } else { value };
    let is_hardware = spec.kind.0 == HARDWARE;
    let (completeness, reason) = if is_shared {
        let percent = 100.0 * share;
        let reason = format!("scaled: the counter ran for {percent:.0} % of the time");
        (Completeness::Sampled, reason)
    } else if let Some(reason) = still_running(left) {
        (Completeness::AtLeast, reason)
    } else if !with_kernel && spec.kind != TASK_CLOCK {
        let reason = "in user mode only: kernel.perf_event_paranoid forbids kernel mode";
        (Completeness::AtLeast, reason.to_owned())
    } else if is_hardware {
        let reason = "excludes the kernel's work after the exit of a process";
        (Completeness::All, reason.to_owned())
    } else {
        let reason = "excludes the kernel's work before exec and at the exit of each process";
        (Completeness::AtLeast, reason.to_owned())
    };
    Some(Offer { method: NAME, value, completeness, error_bound: None, reason: Some(reason) })
}

fn why(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this machine or its hypervisor lacks this hardware counter".to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "kernel.perf_event_paranoid or a container's filter forbids it".to_owned()
        }
        _ => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hypervisor_flag_marks_a_virtual_machine() {
        assert!(has_hypervisor_flag("processor\t: 0\nflags\t\t: fpu hypervisor lahf_lm\n"));
        assert!(!has_hypervisor_flag(
            "processor\t: 0\nflags\t\t: fpu lahf_lm\nhypervisor\t: none\n"
        ));
    }

    #[test]
    fn skipped_hardware_counters_report_the_reason() {
        let mut perf = Perf::new(false);
        let mut ledger = Ledger::new();
        if let Err(why) = perf.attach(std::process::id() as Pid, &mut ledger) {
            eprintln!("skipped: {why}");
            return;
        }
        assert!(perf.counters.iter().all(|(spec, _)| spec.kind.0 == SOFTWARE));
        perf.finish(&mut ledger);
        assert_eq!(ledger.offers.best("cycles", "").reason.as_deref(), Some(VIRTUAL));
    }

    #[test]
    fn a_shared_counter_is_scaled_and_one_that_never_ran_has_no_value() {
        let check = |at: usize, value, enabled_nanos, running_nanos, left| {
            let count = Count { value, enabled_nanos, running_nanos };
            offer(&COUNTERS[at], count, true, left).map(|o| (o.value, o.completeness))
        };
        assert_eq!(check(4, 100, 8, 8, 0), Some((100.0, Completeness::All)));
        assert_eq!(check(4, 100, 8, 8, 2), Some((100.0, Completeness::AtLeast)));
        assert_eq!(check(4, 100, 8, 2, 0), Some((400.0, Completeness::Sampled)));
        assert_eq!(check(4, 0, 8, 0, 0), None);
        assert_eq!(check(0, 1_500_000_000, 8, 8, 0), Some((1.5, Completeness::AtLeast)));
    }
}
