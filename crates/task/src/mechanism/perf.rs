//! `perf_event_open`: counters that the kernel keeps for the first process and hands on to all that it
//! starts, so that they count processes for which nobody waits as well. Hardware counters where the
//! machine has them, processor time and faults everywhere.
//!
//! What is counted begins at exec and ends a little before the process does, and page faults are those
//! that the processor raised: a process of a millisecond counts up to a fifth less than `wait4` says.
//! Each counter makes each birth dearer, so it is there for those who ask. On a virtual machine those of
//! the hardware make each switch between threads dearer as well, because the hypervisor has to set them
//! (input and output that waits for a disk takes twice as long), so there they have to be named.

use std::fs;
use std::io;

use skopos_model::task::Completeness;

use super::Mechanism;
use crate::ledger::{Ledger, Offer};
use crate::sys::Pid;
use crate::sys::perf::{Count, Counter, Kind};

/// The name in reports.
pub(crate) const NAME: &str = "perf";

/// From this share of the time on in which a counter ran it is scaled, and not said to be exact.
const ALL_THE_TIME: f64 = 0.999_999;

/// What is counted of a resource.
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

/// Why those of the hardware are left out.
pub(crate) const VIRTUAL: &str = "on a virtual machine hardware counters make each switch between \
                                  threads dearer: name `perf` to have them";

pub(crate) struct Perf {
    /// True if those of the hardware count too.
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

/// Whether there may be counters at all.
pub(crate) fn may_count() -> Result<(), String> {
    let path = "/proc/sys/kernel/perf_event_paranoid";
    let text = fs::read_to_string(path).map_err(|_| "the kernel has no performance counters")?;
    match text.trim().parse::<i32>() {
        Ok(level) if level > 2 && !rustix::process::geteuid().is_root() => {
            Err(format!("kernel.perf_event_paranoid is {level}: only administrators may count"))
        }
        _ => Ok(()),
    }
}

/// True if this machine is one of several on another one, as far as its processors say.
pub(crate) fn is_virtual() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| says_hypervisor(&text))
}

fn says_hypervisor(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

impl Mechanism for Perf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Err("a counter is handed on to what starts later, not to what runs already")
    }

    fn attach(&mut self, root: Pid, _ledger: &mut Ledger) -> io::Result<()> {
        // With `perf_event_paranoid` at 2 only an administrator may count what the kernel does.
        self.with_kernel = Counter::open(TASK_CLOCK, root, true).is_ok();
        for wanted in &COUNTERS {
            if wanted.kind.0 == HARDWARE && !self.with_hardware {
                self.refused.push((wanted.resource, VIRTUAL.to_owned()));
                continue;
            }
            match Counter::open(wanted.kind, root, self.with_kernel) {
                Ok(counter) => self.counters.push((wanted, counter)),
                Err(e) => self.refused.push((wanted.resource, why(&e))),
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
        for (wanted, mut counter) in self.counters.drain(..) {
            let Ok(count) = counter.read() else { continue };
            if let Some(offer) = offer(wanted, count, self.with_kernel, left) {
                ledger.offers.add(wanted.resource, offer);
            }
        }
    }
}

fn offer(wanted: &CounterSpec, count: Count, with_kernel: bool, left: usize) -> Option<Offer> {
    let Count { value, enabled_nanos, running_nanos } = count;
    let share = running_nanos as f64 / enabled_nanos as f64;
    let is_shared = enabled_nanos > 0 && share < ALL_THE_TIME;
    if is_shared && running_nanos == 0 {
        return None;
    }
    let value = if is_shared { value as f64 / share } else { value as f64 };
    let value = if wanted.kind == TASK_CLOCK { value / 1e9 } else { value };
    let is_hardware = wanted.kind.0 == HARDWARE;
    let (completeness, reason) = if is_shared {
        let percent = 100.0 * share;
        let reason = format!("scaled: the counter was there for {percent:.0} % of the time");
        (Completeness::Sampled, reason)
    } else if left > 0 {
        (Completeness::AtLeast, format!("{left} processes of the task run on"))
    } else if !with_kernel && wanted.kind != TASK_CLOCK {
        let reason = "in user mode only: kernel.perf_event_paranoid forbids the rest";
        (Completeness::AtLeast, reason.to_owned())
    } else if is_hardware {
        let reason = "without the kernel's work for a process that has ended";
        (Completeness::All, reason.to_owned())
    } else {
        let reason = "without what the kernel did before exec and at the end of each process";
        (Completeness::AtLeast, reason.to_owned())
    };
    Some(Offer { method: NAME, value, completeness, error_bound: None, reason: Some(reason) })
}

fn why(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "this machine, or its hypervisor, has no such hardware counter".to_owned()
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
    fn processors_say_that_they_are_virtual() {
        assert!(says_hypervisor("processor\t: 0\nflags\t\t: fpu hypervisor lahf_lm\n"));
        assert!(!says_hypervisor("processor\t: 0\nflags\t\t: fpu lahf_lm\nhypervisor\t: none\n"));
    }

    #[test]
    fn hardware_that_is_left_out_counts_nothing_and_says_why() {
        let mut perf = Perf::new(false);
        let mut ledger = Ledger::new();
        if let Err(why) = perf.attach(std::process::id() as Pid, &mut ledger) {
            eprintln!("skipped: {why}");
            return;
        }
        assert!(perf.counters.iter().all(|(wanted, _)| wanted.kind.0 == SOFTWARE));
        perf.finish(&mut ledger);
        assert_eq!(ledger.offers.best("cycles", "").reason.as_deref(), Some(VIRTUAL));
    }

    #[test]
    fn a_counter_that_was_shared_is_scaled_and_one_that_never_ran_says_nothing() {
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
