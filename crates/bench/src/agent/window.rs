//! The time over which processes are measured.

use std::time::{Duration, Instant};

use super::usage::Meter;

/// Time between two readings of the memory of the processes.
const LOOK: Duration = Duration::from_secs(1);
/// The shortest window: the cost of a poll needs two ticks.
pub(super) const SHORTEST: Duration = Duration::from_secs(2);

/// Reads the memory of all processes until `window` is over.
pub(crate) fn watch(meters: &mut [Meter], window: Duration) {
    let started = Instant::now();
    while started.elapsed() < window {
        std::thread::sleep(LOOK.min(window.saturating_sub(started.elapsed())));
        meters.iter_mut().for_each(Meter::look);
    }
}
