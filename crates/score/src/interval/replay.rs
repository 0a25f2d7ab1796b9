//! Runs a policy under a virtual clock on recorded values: its cost, and the accuracy that readers
//! would have had (Apollo, section 4.3.1, Figures 8 to 10).

use std::time::Duration;

use super::{Finding, Policy};
use crate::trace::Trace;

/// The greatest age of a sample that counts for a tick, in base intervals before the end of that
/// tick's half interval.
const LATE_RATIO: f64 = 1.5;

/// The most ticks of one replay: eleven days at one a second, the same as a trace.
const MAX_TICKS: u64 = 1_000_000;

/// The values of a metric at every tick of the base interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// The time between two ticks.
    pub base: Duration,
    /// One value per tick; NaN if it is unknown.
    pub values: Vec<f64>,
}

/// The belief of readers between two polls.
pub trait Belief {
    /// Takes the value of a poll.
    fn polled(&mut self, at: Duration, value: f64);
    /// Returns the believed value at a time; `None` before the first poll.
    fn at(&mut self, at: Duration) -> Option<f64>;
}

/// Readers believe the value of the last poll.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastValue(Option<f64>);

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replayed {
    /// The number of ticks with a known value.
    pub ticks: u64,
    /// The number of polls, the first one included.
    pub polls: u64,
    /// Polls divided by the polls at the base interval: 1 is a poll at every tick.
    pub cost: f64,
    /// The share of ticks at which the believed value equals the true value.
    pub accuracy: f64,
    /// The share of ticks at which the difference is at most the tolerance.
    pub accuracy_within: f64,
    /// The mean difference, in standard deviations of the values; 0 for a constant.
    pub mean_error: f64,
}

impl Belief for LastValue {
    fn polled(&mut self, _: Duration, value: f64) {
        self.0 = Some(value);
    }

    fn at(&mut self, _: Duration) -> Option<f64> {
        self.0
    }
}

impl Truth {
    /// Reads the value at each tick from a trace: the last sample up to half a base interval after
    /// the tick, if it is at most one and a half base intervals old by then.
    pub fn from_trace(trace: &Trace, base: Duration) -> Self {
        let step = base.as_secs_f64();
        let end = trace.samples.last().map_or(0.0, |(time, _)| time.as_secs_f64());
        let ticks = ((end / step) as u64).min(MAX_TICKS) + u64::from(!trace.samples.is_empty());
        let mut values = Vec::new();
        let mut next = 0;
        for tick in 0..ticks {
            // A sample a little after its tick belongs to that tick.
            let until = (tick as f64 + 0.5) * step;
            while trace.samples.get(next).is_some_and(|(time, _)| time.as_secs_f64() < until) {
                next += 1;
            }
            let last = next.checked_sub(1).and_then(|last| trace.samples.get(last));
            let fresh = last.filter(|(time, _)| until - time.as_secs_f64() <= LATE_RATIO * step);
            values.push(fresh.map_or(f64::NAN, |(_, value)| *value));
        }
        Self { base, values }
    }

    /// Returns the value at a time between ticks: the value at the tick before.
    fn at(&self, at: Duration) -> f64 {
        let tick = (at.as_secs_f64() / self.base.as_secs_f64()) as usize;
        self.values.get(tick).copied().unwrap_or(f64::NAN)
    }

    /// Returns the standard deviation of the known values; 0 if there are none.
    pub fn deviation(&self) -> f64 {
        let known = || self.values.iter().filter(|value| value.is_finite());
        let count = known().count().max(1) as f64;
        let mean = known().sum::<f64>() / count;
        (known().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
    }
}

/// Polls as the policy decides, from the first tick to the last. `tolerance` is the greatest
/// difference that counts as accurate, in the unit of the metric. The policy gets changes in units
/// of the tolerance, or unscaled changes if it is 0.
pub fn replay(
    truth: &Truth,
    tolerance: f64,
    policy: &mut dyn Policy,
    belief: &mut dyn Belief,
) -> Replayed {
    let scale = if tolerance > 0.0 { tolerance } else { 1.0 };
    let (mut due, mut polls, mut ticks) = (Duration::ZERO, 0u64, 0u64);
    let (mut exact, mut within, mut error) = (0u64, 0u64, 0.0);
    for (tick, value) in truth.values.iter().enumerate() {
        let now = truth.base.mul_f64(tick as f64);
        while due <= now {
            let found = truth.at(due);
            let believed = belief.at(due).unwrap_or(found);
            let value = Some(found).filter(|value| value.is_finite());
            if let Some(value) = value {
                belief.polled(due, value);
            }
            let change = (found - believed).abs() / scale;
            polls += 1;
            // An interval of zero would poll for ever.
            due += policy.next(&Finding { at: due, change, value }).max(Duration::from_micros(1));
        }
        let Some(believed) = belief.at(now).filter(|_| value.is_finite()) else { continue };
        let distance = (believed - value).abs();
        ticks += 1;
        exact += u64::from(distance == 0.0);
        within += u64::from(distance <= tolerance);
        error += distance;
    }
    let share = |count: u64| count as f64 / ticks.max(1) as f64;
    let deviation = truth.deviation();
    Replayed {
        ticks,
        polls,
        cost: polls as f64 / truth.values.len().max(1) as f64,
        accuracy: share(exact),
        accuracy_within: share(within),
        mean_error: if deviation > 0.0 { error / ticks.max(1) as f64 / deviation } else { 0.0 },
    }
}
