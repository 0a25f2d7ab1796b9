//! The injected faults.

use skopos_model::SplitMix64;

/// The kinds of faults, by their number.
pub(crate) const KINDS: [&str; 8] = [
    "slow disk",
    "packet loss",
    "congested link",
    "memory pressure",
    "noisy neighbour",
    "full accept queue",
    "dropped packets",
    "hot device",
];

/// One fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: usize,
    /// Seconds, with a fraction: a fault begins between two polls.
    pub(crate) begin: f64,
    pub(crate) end: i64,
    /// From 0, the mildest fault of its kind, to 1.
    pub(crate) size: f64,
    /// The disk, link or listener that has it.
    pub(crate) place: usize,
}

/// Returns faults of all kinds in random order.
pub(crate) fn plan(seed: u64, each: usize, warm_up: i64, spacing: i64) -> Vec<Fault> {
    let mut random = SplitMix64::new(seed ^ 0xfa17);
    let mut kinds: Vec<usize> = (0..KINDS.len() * each).map(|n| n % KINDS.len()).collect();
    for at in (1..kinds.len()).rev() {
        kinds.swap(at, random.below(at + 1));
    }
    let mut at = warm_up as f64;
    let fault = |kind| {
        at += spacing as f64 * random.between(0.7, 1.3);
        let seconds = random.between(15.0, 45.0);
        let (size, place) = (random.unit(), random.below(4));
        Fault { kind, begin: at, end: (at + seconds) as i64, size, place }
    };
    kinds.into_iter().map(fault).collect()
}

impl Fault {
    /// Returns the size of the fault at a poll, if it is of this kind and place and lasts.
    pub(crate) fn at(&self, kind: usize, place: usize, second: i64) -> Option<f64> {
        let lasts = second as f64 >= self.begin && second < self.end;
        (self.kind == kind && self.place == place && lasts).then_some(self.size)
    }
}
