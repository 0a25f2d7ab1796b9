//! The two workloads of the paper (Apollo, section 4.3.1): the free capacity of a device to which
//! HACC writes with pauses. The shape is the paper's; the sequence of random numbers is our own.

use std::time::Duration;

use skopos_model::SplitMix64;

use super::Truth;

/// The free capacity before the first write: the nodes of the paper have local drives of 250 GB. No
/// result depends on it.
const CAPACITY_BYTES: f64 = 250e9;

/// Returns the capacity under writes of 38,000 bytes every five seconds, sampled once a second.
pub fn regular(length: Duration) -> Truth {
    capacity(length, || (5.0, 38_000.0))
}

/// Returns the capacity under writes of 19,000 to 38,000 bytes every 5 to 20 seconds, both
/// uniformly distributed, sampled once a second. The same seed gives the same values.
pub fn irregular(length: Duration, seed: u64) -> Truth {
    let mut random = SplitMix64::new(seed);
    capacity(length, || {
        let gap = 5.0 + 15.0 * random.unit();
        (gap, (19_000.0 + 19_001.0 * random.unit()).floor())
    })
}

/// Returns the free bytes at each second; `write` returns the pause before each write and its
/// bytes.
fn capacity(length: Duration, mut write: impl FnMut() -> (f64, f64)) -> Truth {
    let (mut free, mut bytes, mut time) = (CAPACITY_BYTES, 0.0, 0.0);
    let values = (0..length.as_secs()).map(|second| {
        while time <= second as f64 {
            free -= bytes;
            let (gap, next) = write();
            (time, bytes) = (time + gap, next);
        }
        free
    });
    Truth { base: Duration::from_secs(1), values: values.collect() }
}
