//! The clock of a task: time since its start, on two clocks.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The start of the task.
pub(super) struct Clock {
    started: Instant,
    /// The same moment in nanoseconds of the monotonic clock, which the kernel's events use.
    started_nanos: u64,
}

impl Clock {
    /// Starts a clock now.
    pub(super) fn start() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let nanos = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32).as_nanos();
        Self { started: Instant::now(), started_nanos: nanos as u64 }
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Converts a time of the monotonic clock to seconds since the start.
    pub(super) fn seconds_at(&self, nanos: u64) -> f64 {
        nanos.saturating_sub(self.started_nanos) as f64 / 1e9
    }
}
