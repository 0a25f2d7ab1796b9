//! Usage of an attached task since the attach, from the samples of `procfs`: the counts of living
//! processes, including the children that they waited for, plus those of processes that were reaped
//! here, minus the baseline.

use skopos_model::task::Completeness;

use crate::baseline::Baseline;
use crate::ledger::{Ledger, Offer, Reaped};
use crate::proc::{Io, Stat};

/// Sums of one sample, or the greatest of several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SinceAttach {
    pub(super) user_seconds: f64,
    pub(super) system_seconds: f64,
    minor_faults: u64,
    major_faults: u64,
    pub(super) io: Io,
}

impl SinceAttach {
    pub(super) fn of_the_dead(reaped: &Reaped) -> Self {
        Self {
            user_seconds: reaped.usage.user.as_secs_f64(),
            system_seconds: reaped.usage.system.as_secs_f64(),
            minor_faults: reaped.usage.minor_faults,
            major_faults: reaped.usage.major_faults,
            io: reaped.io,
        }
    }

    pub(super) fn add(&mut self, stat: &Stat, io: Option<Io>) {
        self.user_seconds += stat.total_user_seconds;
        self.system_seconds += stat.total_system_seconds;
        self.minor_faults += stat.minor_faults;
        self.major_faults += stat.major_faults;
        self.io += io.unwrap_or_default();
    }

    pub(super) fn less(self, before: &Baseline) -> Self {
        Self {
            user_seconds: (self.user_seconds - before.user_seconds).max(0.0),
            system_seconds: (self.system_seconds - before.system_seconds).max(0.0),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            io: self.io.since(before.io),
        }
    }

    /// Keeps the greatest sums. Counts never decrease: a sample may miss processes that have just
    /// exited and that an earlier one included.
    pub(super) fn keep(&mut self, now: Self) {
        self.user_seconds = self.user_seconds.max(now.user_seconds);
        self.system_seconds = self.system_seconds.max(now.system_seconds);
        self.minor_faults = self.minor_faults.max(now.minor_faults);
        self.major_faults = self.major_faults.max(now.major_faults);
        self.io.read_bytes = self.io.read_bytes.max(now.io.read_bytes);
        self.io.written_bytes = self.io.written_bytes.max(now.io.written_bytes);
        self.io.device_read_bytes = self.io.device_read_bytes.max(now.io.device_read_bytes);
        self.io.device_written_bytes =
            self.io.device_written_bytes.max(now.io.device_written_bytes);
    }

    /// Offers the sums. At most `unread` processes were left out of a sample.
    pub(super) fn offer(&self, method: &'static str, ledger: &mut Ledger, unread: usize) {
        let torn = if ledger.baseline_is_torn {
            "; processes started or exited during the attach"
        } else {
            ""
        };
        let unread = match unread {
            0 => String::new(),
            more => format!("; {more} processes beyond the limit of a sample were not read"),
        };
        let reason = format!(
            "since the attach, as of the last sample; excludes processes that exited between samples \
             and that no process of the task waited for{torn}{unread}"
        );
        let bound = ledger.baseline.tick_bound_seconds();
        let has_io = ledger.baseline.without_io == 0;
        let mut offer = |name, value: f64, error_bound| {
            let (completeness, reason) = (Completeness::AtLeast, Some(reason.clone()));
            ledger.offers.add(name, Offer { method, value, completeness, error_bound, reason });
        };
        offer("user_seconds", self.user_seconds, None);
        offer("system_seconds", self.system_seconds, None);
        offer("cpu_seconds", self.user_seconds + self.system_seconds, Some(bound));
        offer("minor_faults", self.minor_faults as f64, None);
        offer("major_faults", self.major_faults as f64, None);
        if has_io {
            offer("read_bytes", self.io.read_bytes as f64, None);
            offer("written_bytes", self.io.written_bytes as f64, None);
            offer("device_read_bytes", self.io.device_read_bytes as f64, None);
            offer("device_written_bytes", self.io.device_written_bytes as f64, None);
        } else {
            for name in ["read_bytes", "written_bytes", "device_read_bytes", "device_written_bytes"]
            {
                ledger.offers.mark_unavailable(
                    name,
                    "this user may not read the byte counts of that process",
                );
            }
        }
        for name in ["voluntary_switches", "involuntary_switches"] {
            ledger.offers.mark_unavailable(name, "the number before the attach is unknown");
        }
    }
}
