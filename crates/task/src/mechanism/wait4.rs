//! `wait4`: what the kernel counted for each process that is reaped here, with all that it had waited
//! for itself. Exact, and free. What no parent waited for (because it ignores SIGCHLD) is not in it.
//!
//! Before a dead process is reaped its `/proc/PID/io` can still be read, which holds the bytes of all
//! that it waited for as well. So the task's first process and its orphans, which come to the monitor,
//! tell of all.

use skopos_model::task::Completeness;

use super::{Mechanism, NOT_IN_BYTES};
use crate::ledger::{Ledger, Offer};

/// The name in reports.
pub(crate) const NAME: &str = "wait4";

/// The kernel hands times out in microseconds.
const RESOLUTION_SECONDS: f64 = 1e-6;

/// What is in none of its sums.
pub(crate) const UNWAITED: &str = "what a process used whose parent ignores SIGCHLD is not in it";

/// Of switches, where a tracer stops threads.
const WITHOUT_STOPS: &str = "less one for each stop by the monitor";

pub(crate) struct Wait4;

impl Mechanism for Wait4 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        if ledger.is_attached() {
            return since_it_was_found(ledger);
        }
        let usage = ledger.reaped.usage;
        let (user, system) = (usage.user.as_secs_f64(), usage.system.as_secs_f64());
        let left = ledger.live_pids().len();
        // Where every end is told these are added; else no trace is left of them.
        let missing = match (left > 0, ledger.has_unwaited) {
            (true, _) => Some(format!("{left} processes of the task run on")),
            (false, true) => Some(UNWAITED.to_owned()),
            (false, false) => None,
        };
        let completeness =
            if missing.is_none() { Completeness::All } else { Completeness::AtLeast };
        let mut offer = |name, value, error_bound| {
            // Who is traced is seen to ignore them.
            let maybe = (ledger.stops == 0).then(|| UNWAITED.to_owned());
            let reason = missing.clone().or(maybe);
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound, reason });
        };
        offer("cpu_seconds", user + system, Some(2.0 * RESOLUTION_SECONDS));
        // The sum is exact; how it is divided is known by ticks, and the kernel scales.
        offer("user_seconds", user, None);
        offer("system_seconds", system, None);
        for (name, count) in [
            ("minor_faults", usage.minor_faults),
            ("major_faults", usage.major_faults),
            ("involuntary_switches", usage.involuntary_switches),
        ] {
            offer(name, count as f64, Some(0.0));
        }
        let (stops, io) = (ledger.stops, ledger.reaped.io);
        let without_io = ledger.reaped.without_io;
        let mut offer = |name, value, error_bound, reason: Option<&str>| {
            let reason = missing.clone().or(reason.map(str::to_owned));
            let value = value as f64;
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound, reason });
        };
        // Each stop is one in the kernel's count. Who was stopped may find that there is nothing left
        // to wait for.
        let switches = usage.voluntary_switches.saturating_sub(stops);
        let reason = if stops > 0 { WITHOUT_STOPS } else { UNWAITED };
        offer("voluntary_switches", switches, Some(stops as f64), Some(reason));
        if without_io > 0 {
            return;
        }
        offer("read_bytes", io.read_bytes, Some(0.0), Some(NOT_IN_BYTES));
        offer("written_bytes", io.written_bytes, Some(0.0), Some(NOT_IN_BYTES));
        offer("device_read_bytes", io.device_read_bytes, Some(0.0), None);
        offer("device_written_bytes", io.device_written_bytes, None, None);
    }
}

/// Of a task that ran before, less what it had used by then: a tracer is told as a parent is. What runs
/// on has not been waited for, and is for those who look.
fn since_it_was_found(ledger: &mut Ledger) {
    if !ledger.live_pids().is_empty() || ledger.baseline_is_torn {
        return;
    }
    let (usage, before) = (ledger.reaped.usage, ledger.baseline);
    let missing = "since it was attached to; what a process used that its parent never waited for is \
                   not in it";
    let is_whole = ledger.untraced == 0 && !ledger.has_unwaited;
    let completeness = if is_whole { Completeness::All } else { Completeness::AtLeast };
    let reaped = ledger.reaped;
    let mut offer = |name, value: f64, error_bound: Option<f64>| {
        let (value, reason) = (value.max(0.0), Some(missing.to_owned()));
        ledger.offers.add(name, Offer { method: NAME, value, completeness, error_bound, reason });
    };
    let (user, system) = (usage.user.as_secs_f64(), usage.system.as_secs_f64());
    offer("user_seconds", user - before.user_seconds, None);
    offer("system_seconds", system - before.system_seconds, None);
    let cpu = user + system - before.user_seconds - before.system_seconds;
    offer("cpu_seconds", cpu, Some(before.tick_bound_seconds()));
    let faults = |now: u64, before: u64| now.saturating_sub(before) as f64;
    offer("minor_faults", faults(usage.minor_faults, before.minor_faults), Some(0.0));
    offer("major_faults", faults(usage.major_faults, before.major_faults), Some(0.0));
    if before.without_io + reaped.without_io > 0 {
        return;
    }
    let io = reaped.io.since(before.io);
    offer("read_bytes", io.read_bytes as f64, Some(0.0));
    offer("written_bytes", io.written_bytes as f64, Some(0.0));
    offer("device_read_bytes", io.device_read_bytes as f64, Some(0.0));
    offer("device_written_bytes", io.device_written_bytes as f64, None);
}
