//! Detects values higher or lower than ever before, or than in the last hours.
//!
//! The detector keeps the range of past values; a value is a new extreme if it lies outside of the
//! range by `margin` times its width. The value is usual again when it is back inside, or when no
//! more extreme value came for `after` samples: then it is a level. A value outside by less widens
//! the range without an event, so a creeping rise is found with `margin = 0` only, or by another
//! detector.
//!
//! A horizon is divided into [`BUCKETS`] ranges of equal time; the oldest is dropped as a whole.

use std::time::Duration;

use skopos_model::Timestamp;

use super::{Detector, Expected, Finding, spread};

/// The extremes that raise an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// New maxima.
    High,
    /// New minima.
    Low,
    /// Both.
    Both,
}

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The extremes that raise an event.
    pub side: Side,
    /// The number of samples that establish a range.
    pub after: u32,
    /// The distance from the range, as a share of its width.
    pub margin: f64,
    /// The age from which samples are dropped; `None` keeps the range for ever.
    pub horizon: Option<Duration>,
    /// The least distance from the range, in the unit of the value.
    pub min_spread: f64,
}

impl Settings {
    /// A quarter of the range of 100 samples is about 1.25 standard deviations of normal noise: a
    /// new extreme then lies beyond about 3.75, and further out the more samples there are.
    pub const DEFAULT: Self =
        Self { side: Side::Both, after: 100, margin: 0.25, horizon: None, min_spread: 0.0 };
}

/// The number of ranges in a horizon: at most a sixteenth of it is dropped at once.
pub const BUCKETS: usize = 16;

/// The detector.
#[derive(Clone, Debug)]
pub struct Extreme {
    settings: Settings,
    seen: u32,
    buckets: [Range; BUCKETS],
    /// The number of the current bucket, counted from time zero.
    current: i64,
    range: Range,
    latest: f64,
    /// The range before the extreme.
    left: Option<Range>,
    quiet: u32,
    since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    const EMPTY: Self = Self { low: f64::INFINITY, high: f64::NEG_INFINITY };

    fn with(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    fn holds(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

impl Extreme {
    /// Creates a detector without samples.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            seen: 0,
            buckets: [Range::EMPTY; BUCKETS],
            current: 0,
            range: Range::EMPTY,
            latest: 0.0,
            left: None,
            quiet: 0,
            since: Timestamp::default(),
        }
    }

    /// Returns the distance from `range` at which a value is a new extreme.
    fn room(&self, range: Range) -> f64 {
        let level = range.low.abs().max(range.high.abs());
        let least = spread::least(self.settings.min_spread, level);
        (self.settings.margin * (range.high - range.low)).max(least)
    }

    /// Drops the buckets that are older than the horizon.
    fn forget(&mut self, at: Timestamp) {
        let Some(horizon) = self.settings.horizon else { return };
        let width = (horizon.as_nanos() / BUCKETS as u128).clamp(1, i64::MAX as u128) as i64;
        let now = at.as_nanos().div_euclid(width);
        if now == self.current {
            return;
        }
        let ended = now.saturating_sub(self.current).clamp(1, BUCKETS as i64);
        for bucket in 0..ended {
            self.buckets[place(now - bucket)] = Range::EMPTY;
        }
        self.current = now;
        self.range = self.buckets.iter().fold(Range::EMPTY, |all, bucket| all.with(*bucket));
        if self.range == Range::EMPTY {
            self.seen = 0;
        }
    }
}

/// Returns the position of a bucket in the ring.
fn place(bucket: i64) -> usize {
    bucket.rem_euclid(BUCKETS as i64) as usize
}

impl Detector for Extreme {
    fn take(&mut self, at: Timestamp, value: f64) -> bool {
        self.latest = value;
        self.forget(at);
        let room =
            if self.seen >= self.settings.after { self.room(self.range) } else { f64::INFINITY };
        let high = self.settings.side != Side::Low && value > self.range.high + room;
        let low = self.settings.side != Side::High && value < self.range.low - room;
        if high || low {
            if self.left.is_none() {
                (self.left, self.since) = (Some(self.range), at);
            }
            self.quiet = 0;
        } else if let Some(left) = self.left {
            self.quiet += 1;
            if left.holds(value) || self.quiet >= self.settings.after {
                (self.left, self.since) = (None, at);
            }
        }
        let value = Range { low: value, high: value };
        self.buckets[place(self.current)] = self.buckets[place(self.current)].with(value);
        self.range = self.range.with(value);
        self.seen = self.seen.saturating_add(1);
        self.left.is_some()
    }

    fn finding(&self) -> Finding {
        let range = self.left.unwrap_or(self.range);
        let middle = f64::midpoint(range.low, range.high);
        let room = range.high - middle + self.room(range);
        Finding {
            came: self.latest,
            expected: Expected { value: middle, low: range.low, high: range.high },
            score: (self.latest - middle).abs() / room,
            since: self.since,
        }
    }
}
