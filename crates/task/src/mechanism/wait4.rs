//! `wait4`: the kernel's counts for each process that is reaped here, including the children that
//! it waited for itself. Exact and free. It misses children that no parent waited for, because the
//! parent ignores SIGCHLD.
//!
//! Until an exited process is reaped, its `/proc/PID/io` can be read, which also includes the bytes
//! of all children that it waited for. So the task's first process and the orphans, which the
//! monitor adopts, cover the whole task.

use skopos_model::task::Completeness;

use super::Mechanism;
use super::reasons::{NOT_IN_BYTES, still_running, unassigned};
use crate::ledger::{Ledger, Offer};

/// The name in reports.
pub(crate) const NAME: &str = "wait4";

/// The kernel returns times in microseconds.
const RESOLUTION_SECONDS: f64 = 1e-6;

/// The note on every value.
pub(crate) const UNWAITED: &str = "excludes processes whose parents ignore SIGCHLD";

/// The note on calls.
const NOT_IN_CALLS: &str = "excludes calls such as splice, recv and send, and rings";

/// The note on voluntary switches if a tracer stops threads.
const WITHOUT_STOPS: &str = "minus one for each stop by the monitor";

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
            return finish_attached(ledger);
        }
        let usage = ledger.reaped.usage;
        let (user, system) = (usage.user.as_secs_f64(), usage.system.as_secs_f64());
        let left = ledger.live_pids().len();
        let unwaited = ledger.has_unwaited.then(|| UNWAITED.to_owned());
        let missing = unassigned(ledger.unassigned).or(still_running(left)).or(unwaited);
        let completeness =
            if missing.is_none() { Completeness::All } else { Completeness::AtLeast };
        let mut offer = |name, value, error_bound| {
            // If processes were traced, it is known whether they ignored SIGCHLD.
            let maybe = (ledger.stops == 0).then(|| UNWAITED.to_owned());
            let reason = missing.clone().or(maybe);
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound, reason });
        };
        offer("cpu_seconds", user + system, Some(2.0 * RESOLUTION_SECONDS));
        // The sum is exact; its two parts are estimated from clock ticks.
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
        let unread = unread(ledger.reaped.without_io);
        let mut offer = |name, value, error_bound, reason: Option<&str>| {
            let reason = missing.clone().or(reason.map(str::to_owned));
            let value = value as f64;
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound, reason });
        };
        // Each stop adds one to the kernel's count, unless the stopped thread then finds nothing
        // left to wait for.
        let switches = usage.voluntary_switches.saturating_sub(stops);
        let reason = if stops > 0 { WITHOUT_STOPS } else { UNWAITED };
        offer("voluntary_switches", switches, Some(stops as f64), Some(reason));
        let least = if unread.is_some() { Completeness::AtLeast } else { completeness };
        let mut offer = |name, value: u64, error_bound, reason: Option<&str>| {
            let reason = missing.clone().or(unread.clone()).or(reason.map(str::to_owned));
            let (value, completeness) = (value as f64, least);
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound, reason });
        };
        offer("read_bytes", io.read_bytes, Some(0.0), Some(NOT_IN_BYTES));
        offer("written_bytes", io.written_bytes, Some(0.0), Some(NOT_IN_BYTES));
        offer("read_calls", io.read_calls, Some(0.0), Some(NOT_IN_CALLS));
        offer("write_calls", io.write_calls, Some(0.0), Some(NOT_IN_CALLS));
        offer("device_read_bytes", io.device_read_bytes, Some(0.0), None);
        offer("device_written_bytes", io.device_written_bytes, None, None);
    }
}

/// Returns the reason why bytes are incomplete if those of some processes at their end are unknown.
fn unread(processes: u64) -> Option<String> {
    (processes > 0).then(|| {
        format!(
            "the bytes of {processes} processes are those of their last samples: the kernel shows the \
             counts of an exited process to administrators only, and nothing read them at its exit"
        )
    })
}

/// Offers the values of an attached task minus its baseline. A tracer can `wait4` for exits as a
/// parent can. Processes that are still running have not been waited for; `procfs` measures those.
fn finish_attached(ledger: &mut Ledger) {
    if !ledger.live_pids().is_empty() || ledger.baseline_is_torn {
        return;
    }
    let (usage, before) = (ledger.reaped.usage, ledger.baseline);
    let missing = "since the attach; excludes processes that their parents never waited for";
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
