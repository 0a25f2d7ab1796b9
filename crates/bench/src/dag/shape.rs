//! The shape of a graph, and the changes of its facts.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skopos_model::SplitMix64;

use skopos_term::Failure;

/// Gaps between two changes, in nanoseconds: a publisher that sleeps in between, as an agent does.
const GAP: std::ops::Range<u64> = 100_000..400_000;
/// A worker ends by itself after this time, if its parent does not end it.
pub(super) const LIFE: Duration = Duration::from_secs(600);

/// The size of a graph, and the facts that change.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Number of facts, the inputs of the lowest insight.
    pub(crate) facts: usize,
    /// Number of layers, each an insight over the layer below.
    pub(crate) layers: usize,
    /// True if every fact changes each time, else only the first.
    pub(crate) all_change: bool,
}

/// Calls `change` with 1, 2, … at random gaps, until it is killed.
pub(super) fn beat(mut change: impl FnMut(u64) -> Result<(), Failure>) -> Result<(), Failure> {
    let started = Instant::now();
    let mut random = SplitMix64::new(u64::from(std::process::id()));
    for round in 1.. {
        std::thread::sleep(Duration::from_nanos(GAP.start + random.bits() % (GAP.end - GAP.start)));
        change(round)?;
        if started.elapsed() > LIFE {
            break;
        }
    }
    Ok(())
}
