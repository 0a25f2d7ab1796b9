//! The checks of inputs: faults of values, trust by age, and reports that peers contradict.

use std::time::Duration;

use skopos_model::Timestamp;

use crate::rank::inputs::{Inputs, Peers, Reading};
use crate::rank::profile::{Better, HOLD_AGES, Metric, Profile, Stale};

/// A fault of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no value, or it is too old to count.
    Missing,
    /// The value is older than `max_age`, and counts in part.
    Stale,
    /// The value is NaN, infinite or negative.
    NotANumber,
    /// The time of the value is more than [`MAX_SKEW`] ahead of the clock of this node.
    Future,
    /// Peers measure another value; theirs counts.
    Contradicted,
}

impl Fault {
    /// Returns the fault as a clause, such as `peers measure another value`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "there is no recent value",
            Self::Stale => "the value is old",
            Self::NotANumber => "the value is not a finite number of at least zero",
            Self::Future => "the time of the value is ahead of this clock",
            Self::Contradicted => "peers measure another value",
        }
    }
}

/// Difference of clocks that is tolerated: the values of nodes without NTP. A value from further ahead cannot be aged.
pub const MAX_SKEW: Duration = Duration::from_secs(2);
/// Fresh peers that can contradict a candidate; a single peer could be the liar.
const MIN_PEERS: usize = 2;
/// Ratio between a report and the median of peers from which the report is contradicted. Peers measure from other
/// places, so ratios near 1 mean nothing.
const CONTRADICTION: f64 = 3.0;
/// Largest badness: a value a hundred times worse than the best. One metric must not drown all others, and beyond it no
/// request goes there anyway.
pub(crate) const MAX_BADNESS: f64 = 100.0;

/// One value after the checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    pub(crate) value: f64,
    /// 1 for a fresh value, 0 for a missing one.
    pub(crate) trust: f64,
    pub(crate) fault: Option<Fault>,
    pub(crate) samples: u32,
    pub(crate) age: Duration,
}

impl Checked {
    fn missing(fault: Fault) -> Self {
        Self { value: 0.0, trust: 0.0, fault: Some(fault), samples: 0, age: Duration::MAX }
    }
}

/// Checks every value of `inputs` into `checked`, row by row. `stretch` has the factor by which the maximal age of each
/// metric is longer, because its collection was relaxed.
pub(crate) fn check(
    now: Timestamp,
    profile: &Profile,
    inputs: &Inputs,
    stretch: &[f64],
    checked: &mut Vec<Checked>,
) {
    checked.clear();
    let ages: Vec<Duration> = (profile.metrics.iter().zip(stretch))
        .map(|(metric, stretch)| metric.max_age().mul_f64(*stretch))
        .collect();
    for candidate in 0..inputs.candidates() {
        for (column, max_age) in ages.iter().enumerate() {
            let cell = candidate * ages.len() + column;
            checked.push(match inputs.own(cell) {
                Some(reading) => one(now, reading, *max_age, profile.stale),
                None => Checked::missing(Fault::Missing),
            });
        }
    }
    for peers in inputs.peers() {
        let column = peers.cell % ages.len();
        let (metric, max_age) = (&profile.metrics[column], ages[column]);
        contradict(now, metric, max_age, peers, &mut checked[peers.cell]);
    }
}

fn one(now: Timestamp, reading: Reading, max_age: Duration, stale: Stale) -> Checked {
    if !reading.value.is_finite() || reading.value < 0.0 {
        return Checked::missing(Fault::NotANumber);
    }
    if reading.at.since(now) > MAX_SKEW {
        return Checked::missing(Fault::Future);
    }
    let age = now.since(reading.at);
    let (value, samples) = (reading.value, reading.samples);
    if age <= max_age {
        return Checked { value, trust: 1.0, fault: None, samples, age };
    }
    if age > max_age * HOLD_AGES {
        return Checked { age, ..Checked::missing(Fault::Missing) };
    }
    let trust = match stale {
        Stale::Hold => 1.0,
        Stale::Distrust => (1.0 - age.as_secs_f64() / max_age.as_secs_f64()).exp2(),
        Stale::Exclude => 0.0,
    };
    Checked { value, trust, fault: Some(Fault::Stale), samples, age }
}

/// Replaces a value by the median of its peers where they contradict it, and fills a missing one.
fn contradict(
    now: Timestamp,
    metric: &Metric,
    max_age: Duration,
    peers: &Peers,
    checked: &mut Checked,
) {
    let fresh = peers.readings.iter().map(|r| one(now, *r, max_age, Stale::Exclude));
    let mut fresh: Vec<Checked> = fresh.filter(|c| c.fault.is_none()).collect();
    if fresh.len() < MIN_PEERS {
        return;
    }
    fresh.sort_by(|a, b| a.value.total_cmp(&b.value));
    // Of an even number the worse of the two in the middle, so that two peers that disagree are not averaged.
    let at = match metric.better {
        Better::Lower => fresh.len() / 2,
        Better::Higher => (fresh.len() - 1) / 2,
    };
    let median = fresh[at];
    let usable = checked.trust > 0.0;
    let ratio = (checked.value + metric.floor) / (median.value + metric.floor);
    if usable && (CONTRADICTION.recip()..=CONTRADICTION).contains(&ratio) {
        return;
    }
    let fault = if usable { Some(Fault::Contradicted) } else { None };
    *checked = Checked { fault, ..median };
}

/// Computes the badness of every value: 0 for the best candidate of its metric, 1 for one that is twice as bad. A value
/// that is trusted in part counts as a mean of itself and of the median, a missing one as the median.
pub(crate) fn badness(metrics: &[Metric], checked: &[Checked], out: &mut Vec<f64>) {
    out.clear();
    out.resize(checked.len(), 0.0);
    let width = metrics.len();
    let mut column: Vec<f64> = Vec::new();
    for (at, metric) in metrics.iter().enumerate() {
        column.clear();
        let cells = || checked.iter().skip(at).step_by(width);
        column.extend(cells().filter(|c| c.trust > 0.0).map(|c| c.value));
        let best = match metric.better {
            Better::Lower => column.iter().copied().fold(f64::INFINITY, f64::min),
            Better::Higher => column.iter().copied().fold(0.0, f64::max),
        };
        if column.is_empty() {
            continue;
        }
        let middle = column.len() / 2;
        let (_, median, _) = column.select_nth_unstable_by(middle, f64::total_cmp);
        let usual = relative(metric, *median, best);
        for (row, cell) in cells().enumerate() {
            let own = if cell.trust > 0.0 { relative(metric, cell.value, best) } else { usual };
            out[row * width + at] = usual + (own - usual) * cell.trust.min(1.0);
        }
    }
}

fn relative(metric: &Metric, value: f64, best: f64) -> f64 {
    let (worse, better) = match metric.better {
        Better::Lower => (value, best),
        Better::Higher => (best, value),
    };
    // Halves, so that the sum of two large values stays finite.
    let ratio = (worse / 2.0 + metric.floor / 2.0) / (better / 2.0 + metric.floor / 2.0);
    (ratio - 1.0).clamp(0.0, MAX_BADNESS)
}
