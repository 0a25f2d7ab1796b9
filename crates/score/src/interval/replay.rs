//! A policy under a virtual clock, on values that were recorded: what it would have cost, and how
//! right its readers would have been (Apollo, section 4.3.1, Figures 8 to 10).

use std::time::Duration;

use super::{Finding, Policy};
use crate::trace::Trace;

/// The oldest sample that stands for a tick, in base intervals before the next tick's begin.
const LATE_RATIO: f64 = 1.5;

/// The most ticks of one replay: eleven days of one a second, as a trace.
const MAX_TICKS: u64 = 1_000_000;

/// The values of a metric at every tick of the base rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// Time between two ticks.
    pub base: Duration,
    /// A value a tick; not a number where none is known.
    pub values: Vec<f64>,
}

/// What readers believe between two polls.
pub trait Belief {
    /// A poll found this.
    fn polled(&mut self, at: Duration, value: f64);
    /// What is believed then; `None` before the first poll.
    fn at(&mut self, at: Duration) -> Option<f64>;
}

/// The value is what the last poll found.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastValue(Option<f64>);

/// What a replay came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replayed {
    /// Ticks with a known value.
    pub ticks: u64,
    /// Polls, the first one included.
    pub polls: u64,
    /// Polls ÷ polls at the base rate: 1 is a poll at every tick.
    pub cost: f64,
    /// Share of the ticks at which what was believed is the value.
    pub accuracy: f64,
    /// Share of the ticks at which it is no further off than the tolerance.
    pub accuracy_within: f64,
    /// Mean distance between what was believed and the value, in standard deviations of the values;
    /// 0 for a constant.
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
    /// What a trace says at each tick: the last sample until half a base interval after it, if that
    /// is no older than one and a half.
    pub fn of(trace: &Trace, base: Duration) -> Self {
        let step = base.as_secs_f64();
        let end = trace.samples.last().map_or(0.0, |(time, _)| time.as_secs_f64());
        let ticks = ((end / step) as u64).min(MAX_TICKS) + u64::from(!trace.samples.is_empty());
        let mut values = Vec::new();
        let mut next = 0;
        for tick in 0..ticks {
            // A sample that came a little after its tick is the tick's own.
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

    /// The value at a time between ticks: that of the tick before.
    fn at(&self, at: Duration) -> f64 {
        let tick = (at.as_secs_f64() / self.base.as_secs_f64()) as usize;
        self.values.get(tick).copied().unwrap_or(f64::NAN)
    }

    /// Standard deviation of the known values; 0 of none.
    pub fn deviation(&self) -> f64 {
        let known = || self.values.iter().filter(|value| value.is_finite());
        let count = known().count().max(1) as f64;
        let mean = known().sum::<f64>() / count;
        (known().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
    }
}

/// Polls as the policy says, from the first tick to the last. `tolerance` is how far off a belief
/// may be to count as right, in the metric's unit; the policy is told changes in units of it, and
/// changes as they are if it is 0.
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
            // An interval of nothing would poll for ever.
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
