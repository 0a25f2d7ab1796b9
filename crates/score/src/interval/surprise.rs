//! One number for the many facts of a sensor: how much of what a reader believed was wrong.
//!
//! Until a poll, a reader believes that a gauge is what it was and that a counter goes on at its
//! rate. The poll shows how far that was off. How far is far, each fact says itself, by what it did
//! before. So a quiet machine, on which everything moves a little all the time, has no surprises, and
//! a job that starts is one.
//!
//! - A gauge has a *jitter*: the median of its deviations between polls a base interval apart. Eight
//!   times that counts, and never less than a hundredth of the value. A gauge that stands still more
//!   often than not has no jitter, and each of its steps counts.
//! - A counter, in terms of its rate, has a *tolerance* that one deviation in two thousand exceeds:
//!   interrupts that come now and then are the manner of a quiet machine.
//! - A state counts whenever it changes. A counter that starts again at zero counts once.
//! - What nobody decides otherwise for is no surprise, however rare it is ([`least`]): a journal that
//!   writes four kilobytes on an idle disk, one tick of 10 ms that a core did not idle. Of what counts
//!   errors each one is.
//!
//! A sensor has a hundred facts, and the greatest of a hundred surprises is what its policy hears. So a
//! gauge that jitters and surprises all the same has to go further each time: rare moves of one fact
//! are, taken together, the usual state of a machine.
//!
//! Jitter is learned at the base interval only. A policy that has found a rhythm polls just when
//! things change; were it learned then, every change would soon be taken for jitter.
//!
//! # Invariants
//! - Thirty-two bytes a fact at most, nothing allocated for a fact that is known, and no loop.
//! - Steady noise of any size stops to surprise, after some hundred polls at the base interval.

use std::time::Duration;

use skopos_model::schema::Metric;
use skopos_model::{Kind, Unit};

use super::Finding;

/// The greatest change there is: what moves without any jitter before has no measure.
pub const MAX_CHANGE: f64 = 1e6;

/// What a change of state, or a restarted counter, counts. More than 1, so that it matters.
const STATE_CHANGE: f64 = 2.0;

/// How much of a deviation is believed to be jitter when there was none before.
const SEED_RATIO: f32 = 1.0 / 64.0;

/// A poll teaches jitter if it came at most this many base intervals after the one before.
const BASE_REACH: f64 = 1.5;

/// A quantile that is followed step by step: it grows by one factor when a deviation is above it and
/// shrinks by another when it is below; their logarithms are to each other as the shares of either
/// (stochastic approximation of a quantile: Robbins and Monro, 1951).
struct Quantile {
    grow: f32,
    shrink: f32,
}

/// ln 1.12 : -ln 0.893 is 1 : 1, which is the median.
const MEDIAN: Quantile = Quantile { grow: 1.12, shrink: 0.892_857 };
/// ln 2 : -ln 0.999653 is 2000 : 1. Ten deviations are enough to learn a thousandfold one.
const RARE: Quantile = Quantile { grow: 2.0, shrink: 0.999_653 };

/// How many times its jitter a gauge must deviate to count.
const JITTERS: f32 = 8.0;
/// The furthest that it has to go at last, as a multiple of that.
const MOST_JITTERS: f32 = 64.0;
/// A deviation below this share of the value is none: nobody decides otherwise for it.
const LEAST_SHARE: f64 = 0.01;

/// Names of counters that hold one of these count what went wrong. One more is news, whatever else
/// there are a thousand of a second.
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

/// The deviation below which nobody decides otherwise: of a gauge in its unit, of a counter in its
/// unit a second. Zero where only the fact's own past can say.
pub fn least(metric: &Metric) -> f32 {
    match (metric.kind, metric.unit) {
        // A thousandth of a small machine's memory, a hundredth of what a slow disk moves.
        (Kind::Gauge, Unit::BYTES) => 4.0 * 1024.0 * 1024.0,
        (Kind::Counter, Unit::BYTES) => 1024.0 * 1024.0,
        // Of a core, of a device's time: what housekeeping takes now and then.
        (Kind::Counter, Unit::SECONDS) | (Kind::Gauge, Unit::RATIO) => 0.05,
        // Less than a wait in any scheduler's queue.
        (Kind::Gauge, Unit::SECONDS) => 0.001,
        // One task, one request in flight: on a small machine that is the difference between idle
        // and busy. What is averaged, such as a load, drifts by hundredths and does not count.
        (Kind::Gauge, Unit::NONE) => 1.0,
        (Kind::Counter, Unit::NONE) if WRONG.iter().any(|word| metric.name.contains(word)) => 0.0,
        // At 10 us each that is a hundredth of a core.
        (Kind::Counter, Unit::NONE) => 1000.0,
        _ => 0.0,
    }
}

/// What is kept of one fact.
#[derive(Clone, Copy, Debug)]
struct Known {
    last: f64,
    /// When `last` was, in seconds of the clock; NaN before the first value.
    at: f64,
    /// Of a counter, a second. Of a gauge, how many times further than usual it must go, negative if
    /// it stood still last. NaN while unknown.
    rate: f32,
    /// The jitter of a gauge, the tolerance of a counter.
    usual: f32,
    /// What [`least`] says of it.
    least: f32,
    kind: Kind,
}

impl Known {
    /// Before the first value.
    fn new(kind: Kind, least: f32) -> Self {
        Self { last: 0.0, at: f64::NAN, rate: f32::NAN, usual: 0.0, least, kind }
    }
}

/// Gathers the facts of one poll after the other into a [`Finding`] each.
#[derive(Clone, Debug)]
pub struct Surprise {
    /// By the fact's index; `None` for one that never came.
    facts: Vec<Option<Known>>,
    base: f64,
    at: Duration,
    change: f64,
}

impl Surprise {
    /// For a sensor that is polled every `base` at the most.
    pub fn new(base: Duration) -> Self {
        Self { facts: Vec::new(), base: base.as_secs_f64(), at: Duration::ZERO, change: 0.0 }
    }

    /// A poll begins, at this time of a clock that never steps.
    pub fn begin(&mut self, at: Duration) {
        self.at = at;
        self.change = 0.0;
    }

    /// The sensor has this fact from now on, instead of what had its index before. Below `least`
    /// ([`least`]) nothing counts. Indices are small: memory is kept for all below the greatest.
    pub fn came(&mut self, index: usize, kind: Kind, least: f32) {
        if index >= self.facts.len() {
            self.facts.resize(index + 1, None);
        }
        self.facts[index] = Some(Known::new(kind, least));
    }

    /// The value of one of its facts. What is not finite is not looked at, nor a fact that never
    /// came.
    #[inline]
    pub fn fact(&mut self, index: usize, value: f64) {
        let known = self.facts.get_mut(index).filter(|_| value.is_finite());
        if let Some(Some(known)) = known {
            let change = known.take(value, self.at.as_secs_f64(), BASE_REACH * self.base);
            self.change = self.change.max(change);
        }
    }

    /// The poll is done: the greatest surprise of all its facts, 0 if there was none.
    pub fn finish(&self) -> Finding {
        Finding { at: self.at, change: self.change, value: None }
    }
}

impl Known {
    /// The change in units of what matters for this fact.
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
            // A step out of rest is no jitter, and the next need not go further.
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

    /// How many times further than usual a gauge must go, and whether it moved at the last poll that
    /// it learned from.
    #[inline]
    fn further(&self) -> (f32, bool) {
        if self.rate.is_nan() { (1.0, false) } else { (self.rate.abs(), self.rate > 0.0) }
    }

    #[inline]
    fn judge_rate(&mut self, rate: f64) -> f64 {
        let believed = f64::from(std::mem::replace(&mut self.rate, rate as f32));
        // As the rate is kept, so that one that stays the same deviates by nothing.
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

/// A deviation in units of what matters.
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
