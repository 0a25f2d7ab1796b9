//! The times of the injected faults.

use skopos_model::SplitMix64;

/// Number of kinds of faults.
pub(super) const KINDS: usize = 8;

/// One fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) kind: usize,
    /// Seconds, with a fraction: a fault begins between two polls.
    pub(super) begin: f64,
    pub(super) end: i64,
    /// From 0, the mildest fault of its kind, to 1.
    pub(super) size: f64,
    /// The disk, link or listener that has it.
    pub(super) place: usize,
}

/// The times of a run, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The time before the first fault, in which every load occurs.
    pub(super) warm_up: i64,
    /// The mean time from the begin of a fault to the next.
    pub(super) spacing: f64,
    /// The shortest and the longest fault.
    pub(super) lasting: (f64, f64),
}

/// Returns faults of all kinds in random order.
pub(super) fn plan(seed: u64, each: usize, times: Times) -> Vec<Fault> {
    let mut random = SplitMix64::new(seed ^ 0xfa17);
    let mut kinds: Vec<usize> = (0..KINDS * each).map(|n| n % KINDS).collect();
    for at in (1..kinds.len()).rev() {
        kinds.swap(at, random.below(at + 1));
    }
    let mut at = times.warm_up as f64;
    let fault = |kind| {
        at += times.spacing * random.between(0.7, 1.3);
        let seconds = random.between(times.lasting.0, times.lasting.1);
        let (size, place) = (random.unit(), random.below(4));
        Fault { kind, begin: at, end: (at + seconds) as i64, size, place }
    };
    kinds.into_iter().map(fault).collect()
}

impl Fault {
    /// Returns the size of the fault at a poll, if it is of this kind and place and lasts.
    pub(super) fn at(&self, kind: usize, place: usize, second: i64) -> Option<f64> {
        let lasts = second as f64 >= self.begin && second < self.end;
        (self.kind == kind && self.place == place && lasts).then_some(self.size)
    }
}
