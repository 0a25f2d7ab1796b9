//! The clock that all processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// Reads `CLOCK_MONOTONIC`, in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
