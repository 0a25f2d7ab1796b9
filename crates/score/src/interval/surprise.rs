//! Reduces the facts of a sensor to one number: the error of the belief that a reader had before
//! the poll.
//!
//! Until a poll, a reader believes that a gauge keeps its value and that a counter keeps its rate.
//! The poll shows the error of that belief. Each fact defines by its own past which error is large.
//! So a quiet machine, on which every fact moves a little all the time, causes no surprise, and the
//! start of a job does.
//!
//! - A gauge has a *jitter*: the median of its deviations between polls one base interval apart. A
//!   deviation counts if it exceeds eight times the jitter and a hundredth of the value. A gauge
//!   that mostly stands still has no jitter, and each of its steps counts.
//! - A counter has a *tolerance* of its rate, which one deviation in two thousand exceeds: on a
//!   quiet machine, interrupts that come now and then are normal.
//! - A state counts whenever it changes. A counter that restarts at zero counts once.
//! - A deviation too small for any decision does not count, however rare it is
//!   ([`least_deviation`]): a journal that writes four kilobytes to an idle disk, or one tick of
//!   10 ms in which a core was not idle. For a counter of errors, every error counts.
//!
//! A sensor has about a hundred facts, and its policy gets the greatest of their surprises. So a
//! gauge that jitters and still surprises has to deviate further each time: the rare moves of
//! single facts are, taken together, the normal state of a machine.
//!
//! Jitter is learned at the base interval only. A policy that has found a rhythm polls at the very
//! times of changes; if jitter were learned then, every change would soon count as jitter.
//!
//! # Invariants
//! - A fact takes at most thirty-two bytes. A known fact allocates nothing and needs no loop.
//! - Steady noise of any size stops being a surprise after some hundred polls at the base interval.

use std::time::Duration;

use skopos_model::schema::Metric;
use skopos_model::{Kind, Unit};

use super::Finding;

/// The greatest change: a value that never moved before has no scale.
pub const MAX_CHANGE: f64 = 1e6;

/// The change of a state or of a restarted counter. It is more than 1, so that it is significant.
const STATE_CHANGE: f64 = 2.0;

/// The share of a deviation that counts as jitter if there was no jitter before.
const SEED_RATIO: f32 = 1.0 / 64.0;

/// A poll teaches jitter if it came at most this many base intervals after the poll before.
const BASE_REACH: f64 = 1.5;

/// A quantile that is estimated step by step: it grows by one factor after a deviation above it and
/// shrinks by another after a deviation below it. The ratio of the logarithms of the factors is the
/// ratio of the shares above and below (stochastic approximation of a quantile: Robbins and Monro,
/// 1951).
struct Quantile {
    grow: f32,
    shrink: f32,
}

/// ln 1.12 : -ln 0.893 is 1 : 1, which is the median.
const MEDIAN: Quantile = Quantile { grow: 1.12, shrink: 0.892_857 };
/// ln 2 : -ln 0.999653 is 2000 : 1. Ten deviations suffice to learn one a thousand times as large.
const RARE: Quantile = Quantile { grow: 2.0, shrink: 0.999_653 };

/// The multiple of its jitter by which a gauge must deviate to count.
const JITTERS: f32 = 8.0;
/// The greatest further factor on that multiple.
const MOST_JITTERS: f32 = 64.0;
/// A deviation below this share of the value does not count, because no decision depends on it.
const LEAST_SHARE: f64 = 0.01;

/// A counter whose name holds one of these words counts failures. One more is significant, even
/// among a thousand a second.
const WRONG: [&str; 12] = [
    "abort",
    "drop",
    "error",
    "fail",
    "lost",
    "malformed",
    "oom_kill",
    "overflow",
    "overrun",
    "reset",
    "retransmit",
    "unsafe",
];

/// Returns the deviation below which no decision changes: for a gauge in its unit, for a counter in
/// its unit per second. Zero if only the past of the fact can tell.
pub fn least_deviation(metric: &Metric) -> f32 {
    match (metric.kind, metric.unit) {
        // A thousandth of the memory of a small machine, and a hundredth of the bandwidth of a slow
        // disk.
        (Kind::Gauge, Unit::BYTES) => 4.0 * 1024.0 * 1024.0,
        (Kind::Counter, Unit::BYTES) => 1024.0 * 1024.0,
        // Share of a core or of a device's time that housekeeping takes now and then.
        (Kind::Counter, Unit::SECONDS) | (Kind::Gauge, Unit::RATIO) => 0.05,
        // Less than a wait in any scheduler's queue.
        (Kind::Gauge, Unit::SECONDS) => 0.001,
        // One task or one request in flight: on a small machine that is the difference between idle
        // and busy. An average such as a load drifts by hundredths and does not count.
        (Kind::Gauge, Unit::NONE) => 1.0,
        (Kind::Counter, Unit::NONE) if WRONG.iter().any(|word| metric.name.contains(word)) => 0.0,
        // At 10 us each, this is a hundredth of a core.
        (Kind::Counter, Unit::NONE) => 1000.0,
        _ => 0.0,
    }
}

/// The state of one fact.
#[derive(Clone, Copy, Debug)]
struct FactState {
    last: f64,
    /// The time of `last`, in seconds of the clock; NaN before the first value.
    at: f64,
    /// For a counter its rate per second. For a gauge the factor on its tolerance, negative if it
    /// stood still at the last poll. NaN while unknown.
    rate: f32,
    /// The jitter of a gauge, or the tolerance of a counter.
    usual: f32,
    /// The result of [`least_deviation`] for the fact.
    least: f32,
    kind: Kind,
}

impl FactState {
    /// Creates the state before the first value.
    fn new(kind: Kind, least: f32) -> Self {
        Self { last: 0.0, at: f64::NAN, rate: f32::NAN, usual: 0.0, least, kind }
    }
}

/// Reduces the facts of each poll to a [`Finding`].
#[derive(Clone, Debug)]
pub struct Surprise {
    /// By the index of the fact; `None` for an index without a fact.
    facts: Vec<Option<FactState>>,
    base: f64,
    at: Duration,
    change: f64,
}

impl Surprise {
    /// Creates the state of a sensor that is polled at most every `base`.
    pub fn new(base: Duration) -> Self {
        Self { facts: Vec::new(), base: base.as_secs_f64(), at: Duration::ZERO, change: 0.0 }
    }

    /// Begins a poll at a time of a clock that never steps.
    #[inline]
    pub fn begin(&mut self, at: Duration) {
        self.at = at;
        self.change = 0.0;
    }

    /// Adds a fact to the sensor, instead of any fact that had its index before. Deviations below
    /// `least`, which [`least_deviation`] gives, do not count. Indexes should be small: memory is
    /// kept for all below the greatest.
    pub fn add_fact(&mut self, index: usize, kind: Kind, least: f32) {
        if index >= self.facts.len() {
            self.facts.resize(index + 1, None);
        }
        self.facts[index] = Some(FactState::new(kind, least));
    }

    /// Takes the value of a fact. Ignores values that are not finite and facts that were never
    /// added.
    #[inline]
    pub fn fact(&mut self, index: usize, value: f64) {
        let state = self.facts.get_mut(index).filter(|_| value.is_finite());
        if let Some(Some(state)) = state {
            let change = state.take(value, self.at.as_secs_f64(), BASE_REACH * self.base);
            self.change = self.change.max(change);
        }
    }

    /// Ends the poll and returns the greatest surprise of all facts; 0 if there was none.
    #[inline]
    pub fn finish(&self) -> Finding {
        Finding { at: self.at, change: self.change, value: None }
    }
}

impl FactState {
    /// Returns the change in units of what is significant for this fact.
    #[inline]
    fn take(&mut self, value: f64, now: f64, reach: f64) -> f64 {
        let elapsed = now - self.at;
        let last = std::mem::replace(&mut self.last, value);
        self.at = now;
        if elapsed.is_nan() {
            return 0.0;
        }
        match self.kind {
            Kind::State if value == last => 0.0,
            Kind::State => STATE_CHANGE,
            Kind::Gauge => self.judge_gauge(value, last, elapsed <= reach),
            Kind::Counter if value < last => {
                self.rate = f32::NAN;
                STATE_CHANGE
            }
            Kind::Counter if elapsed > 0.0 => self.judge_rate((value - last) / elapsed),
            Kind::Counter => 0.0,
        }
    }

    #[inline]
    fn judge_gauge(&mut self, value: f64, last: f64, is_base: bool) -> f64 {
        let deviation = (value - last).abs();
        let least = f64::from(self.least).max(LEAST_SHARE * value.abs().max(last.abs()));
        let (further, moved_before) = self.further();
        let tolerance = f64::from(self.usual * JITTERS * further).max(least);
        if is_base {
            // A step out of rest is not jitter, and the next need not go further.
            let further = if deviation > tolerance && moved_before {
                (further * RARE.grow).min(MOST_JITTERS)
            } else {
                (further * RARE.shrink).max(1.0)
            };
            self.rate = if deviation > 0.0 { further } else { -further };
            self.usual = MEDIAN.follow(self.usual, deviation as f32);
        }
        in_units(deviation, tolerance)
    }

    /// Returns the factor on the tolerance of a gauge, and whether the gauge moved at the last poll
    /// that it learned from.
    #[inline]
    fn further(&self) -> (f32, bool) {
        if self.rate.is_nan() { (1.0, false) } else { (self.rate.abs(), self.rate > 0.0) }
    }

    #[inline]
    fn judge_rate(&mut self, rate: f64) -> f64 {
        let believed = f64::from(std::mem::replace(&mut self.rate, rate as f32));
        // The rate is compared as it is stored, so that a constant rate has a deviation of zero.
        let deviation = (f64::from(self.rate) - believed).abs();
        if deviation.is_nan() {
            return 0.0;
        }
        let tolerance = f64::from(self.usual.max(self.least));
        self.usual = RARE.follow(self.usual, deviation as f32);
        in_units(deviation, tolerance)
    }
}

impl Quantile {
    #[inline]
    fn follow(&self, now: f32, deviation: f32) -> f32 {
        if deviation > now {
            (now * self.grow).max(deviation * SEED_RATIO)
        } else {
            now * self.shrink
        }
    }
}

/// Returns a deviation in units of the tolerance.
#[inline]
fn in_units(deviation: f64, tolerance: f64) -> f64 {
    if deviation > tolerance * MAX_CHANGE {
        MAX_CHANGE
    } else if deviation > 0.0 {
        deviation / tolerance
    } else {
        0.0
    }
}
