//! One number for the many facts of a sensor: how much of what a reader believed was wrong.
//!
//! Until a poll, a reader believes that a gauge is what it was and that a counter goes on at its
//! rate. The poll shows how far that was off. How far is far, each fact says itself: a *jitter* is
//! kept for it, a quantile of its deviations between polls a base interval apart, and only a
//! deviation of several times its jitter counts. So a quiet machine, on which everything moves a
//! little all the time, has no surprises, and a job that starts is one.
//!
//! - A gauge: the median, times eight. A gauge that stands still more often than not has no jitter,
//!   and each of its steps counts.
//! - A counter, in terms of its rate: nine deviations in ten, times three. Interrupts that come now
//!   and then are the manner of a quiet machine.
//! - A state counts whenever it changes. A counter that starts again at zero counts once.
//!
//! Jitter is learned at the base interval only. A policy that has found a rhythm polls just when
//! things change; were it learned then, every change would soon be taken for jitter.
//!
//! # Invariants
//! - Thirty-two bytes a fact at most, nothing allocated for a fact that is known, and no loop.
//! - Steady noise of any size stops to surprise, after some hundred polls at the base interval.

use std::time::Duration;

use skopos_model::Kind;

use super::Finding;

/// The greatest change there is: what moves without any jitter before has no measure.
pub const MAX_CHANGE: f64 = 1e6;

/// What a change of state, or a restarted counter, counts. More than 1, so that it matters.
const STATE_CHANGE: f64 = 2.0;

/// How much of a deviation is believed to be jitter when there was none before.
const SEED_RATIO: f32 = 1.0 / 64.0;

/// A poll teaches jitter if it came at most this many base intervals after the one before.
const BASE_REACH: f64 = 1.5;

/// Jitter of one kind of fact: grows when a deviation is above it and shrinks when it is below, in
/// steps whose logarithms are to each other as the shares of either (stochastic approximation of a
/// quantile: Robbins and Monro, 1951).
struct Manner {
    grow: f32,
    shrink: f32,
    /// How many times the jitter a deviation must be to count 1.
    times: f64,
}

/// ln 1.12 : -ln 0.893 is 1 : 1, which is the median.
const GAUGE: Manner = Manner { grow: 1.12, shrink: 0.892_857, times: 8.0 };
/// ln 1.35 : -ln 0.967 is 9 : 1, which is nine tenths.
const COUNTER: Manner = Manner { grow: 1.35, shrink: 0.967_205, times: 3.0 };

/// What is kept of one fact.
#[derive(Clone, Copy, Debug)]
struct Known {
    last: f64,
    /// When `last` was, in seconds of the clock; NaN before the first value.
    at: f64,
    /// Of a counter, a second; NaN while unknown.
    rate: f32,
    jitter: f32,
}

const UNKNOWN: Known = Known { last: 0.0, at: f64::NAN, rate: f32::NAN, jitter: 0.0 };

/// Gathers the facts of one poll after the other into a [`Finding`] each.
#[derive(Clone, Debug)]
pub struct Surprise {
    /// By the fact's index.
    facts: Vec<Known>,
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

    /// One of its facts. `index` is the fact's own as long as it lives, and small: memory is kept
    /// for all indices below it. What is not finite is not looked at.
    #[inline]
    pub fn fact(&mut self, index: usize, value: f64, kind: Kind) {
        if index >= self.facts.len() {
            self.facts.resize(index + 1, UNKNOWN);
        }
        if value.is_finite() {
            let now = self.at.as_secs_f64();
            let change = self.facts[index].take(value, kind, now, BASE_REACH * self.base);
            self.change = self.change.max(change);
        }
    }

    /// The fact is gone; its index may be another's from now on.
    pub fn forget(&mut self, index: usize) {
        if let Some(known) = self.facts.get_mut(index) {
            *known = UNKNOWN;
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
    fn take(&mut self, value: f64, kind: Kind, now: f64, reach: f64) -> f64 {
        let elapsed = now - self.at;
        let last = std::mem::replace(&mut self.last, value);
        self.at = now;
        if elapsed.is_nan() {
            return 0.0;
        }
        let (deviation, manner) = match kind {
            Kind::State => return if value == last { 0.0 } else { STATE_CHANGE },
            Kind::Gauge => ((value - last).abs(), GAUGE),
            Kind::Counter if value < last => {
                self.rate = f32::NAN;
                return STATE_CHANGE;
            }
            Kind::Counter if elapsed > 0.0 => {
                let rate = (value - last) / elapsed;
                let believed = f64::from(std::mem::replace(&mut self.rate, rate as f32));
                // As the rate is kept, so that one that stays the same deviates by nothing.
                let deviation = (f64::from(self.rate) - believed).abs();
                if deviation.is_nan() {
                    return 0.0;
                }
                (deviation, COUNTER)
            }
            Kind::Counter => return 0.0,
        };
        let tolerance = f64::from(self.jitter) * manner.times;
        if elapsed <= reach {
            self.learn(deviation as f32, &manner);
        }
        if deviation > tolerance * MAX_CHANGE {
            MAX_CHANGE
        } else if deviation > 0.0 {
            deviation / tolerance
        } else {
            0.0
        }
    }

    #[inline]
    fn learn(&mut self, deviation: f32, manner: &Manner) {
        if deviation > self.jitter {
            self.jitter = (self.jitter * manner.grow).max(deviation * SEED_RATIO);
        } else {
            self.jitter *= manner.shrink;
        }
    }
}
