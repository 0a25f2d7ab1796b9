//! The beat of the agent: due times are multiples of an interval, so that sensors, predictions and checks
//! share wakes.

use std::time::Duration;

/// Returns the multiple of `beat` that is nearest to `at`.
pub(crate) fn nearest_beat(at: Duration, beat: Duration) -> Duration {
    let beat = beat.as_nanos().max(1);
    let beats = (at.as_nanos() + beat / 2) / beat;
    Duration::from_nanos(u64::try_from(beats.saturating_mul(beat)).unwrap_or(u64::MAX))
}
