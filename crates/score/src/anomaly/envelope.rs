//! Detects values that stay outside of the range in which a series moves.
//!
//! The detector keeps two ranges for each of the last [`BUCKETS`] buckets of samples: that of the
//! values, and that of the *levels*, which are values that two samples in a row reach. A single spike
//! is a value and not a level. The envelope of each runs from the second lowest minimum to the second
//! highest maximum, so one odd bucket does not widen it. A value is outside of an envelope if it is
//! beyond an edge by more than `margin` times the width.
//!
//! A value is unusual after `persist` samples in a row outside of the envelope of values, or one more
//! outside of that of levels, which is narrower. So a large step is found at once, a small one a
//! sample later, and spikes are not unusual. No season and no shape of noise is assumed: a series that
//! is quiet for minutes and then busy for seconds (write-back, garbage collection) has envelopes too.
//!
//! An edge that moves inwards does so slowly, with a memory of [`MEMORY_BUCKETS`] buckets, because
//! loads come back after minutes. A value outside enters its bucket only up to the bound, and not at
//! all while the series is unusual. If it is unusual for [`LEVEL_SAMPLES`] samples, the values are a
//! new level: they become part of the envelope, and the series is usual again.
//!
//! With few buckets the envelope is too narrow. The margin is therefore `1 + BUCKETS / 2 / n` times
//! as large after `n` buckets.

use skopos_model::Timestamp;

use super::{Detector, Expected, Finding, spread};

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The number of samples in the envelope.
    pub window: u32,
    /// The distance from an edge, as a share of the width, beyond which a value is outside.
    pub margin: f64,
    /// The number of samples before judging begins.
    pub after: u32,
    /// The number of samples in a row that are outside of the envelope of values before they are
    /// unusual. A row outside of the envelope of levels is one longer.
    pub persist: u32,
    /// The least distance from an edge, in the unit of the value.
    pub min_spread: f64,
}

impl Settings {
    /// Eight minutes of seconds. Normal noise fills about 5.5 standard deviations of it, so a bound
    /// lies 5.5 or more from the mean. Two samples in a row cost a second of delay and remove all
    /// single spikes.
    pub const DEFAULT: Self =
        Self { window: 480, margin: 0.5, after: 120, persist: 2, min_spread: 0.0 };

    /// The shortest window: six samples in a bucket.
    pub const MIN_WINDOW: u32 = 6 * BUCKETS as u32;
    /// The longest window: a day of seconds; it costs no memory.
    pub const MAX_WINDOW: u32 = 86_400;
    /// The most samples in a row: a minute of seconds. Later news is of little use.
    pub const MAX_PERSIST: u32 = 60;
}

/// The number of buckets: the second highest of 16 maxima leaves out what is seen in one of them only.
pub const BUCKETS: usize = 16;

/// The memory of an edge that moves inwards: an hour with the default window at a sample a second.
pub const MEMORY_BUCKETS: u32 = 120;

/// The number of unusual samples after which their values are a new level.
pub const LEVEL_SAMPLES: u32 = 120;

/// The number of samples inside after which an unusual series is usual again.
const CLEAR_SAMPLES: u32 = 3;

/// The share of the margin within which an unusual series must return to be inside.
const CLEAR_RATIO: f64 = 0.5;

/// The number of buckets from which the second of them is an edge, and not the first.
const ROBUST_BUCKETS: usize = 6;

/// The detector.
#[derive(Clone, Debug)]
pub struct Envelope {
    settings: Settings,
    seen: u32,
    values: Ranges,
    levels: Ranges,
    /// The number of closed buckets since the start.
    closed: u32,
    in_open: u32,
    /// A running mean, for the expected value.
    mean: f64,
    /// The value that was fed before.
    before: f64,
    latest: f64,
    score: f64,
    /// Samples in a row outside of the envelope of levels, and of that of values.
    outside: u32,
    far_outside: u32,
    inside: u32,
    raised_for: u32,
    raised: bool,
    /// The range of the values while the series is unusual.
    unusual: Range,
    since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    const EMPTY: Self = Self { low: f64::INFINITY, high: f64::NEG_INFINITY };

    fn with(self, value: f64) -> Self {
        Self { low: self.low.min(value), high: self.high.max(value) }
    }
}

impl Envelope {
    /// Creates a detector without samples.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            seen: 0,
            values: Ranges::EMPTY,
            levels: Ranges::EMPTY,
            closed: 0,
            in_open: 0,
            mean: 0.0,
            before: f64::NAN,
            latest: 0.0,
            score: 0.0,
            outside: 0,
            far_outside: 0,
            inside: 0,
            raised_for: 0,
            raised: false,
            unusual: Range::EMPTY,
            since: Timestamp::default(),
        }
    }

    /// Returns the distance from an edge of `ranges` beyond which a value is outside.
    fn room(&self, ranges: &Ranges) -> f64 {
        let Range { low, high } = ranges.edges;
        let least = spread::least(self.settings.min_spread, low.abs().max(high.abs()));
        let young = BUCKETS as f64 / 2.0 / f64::from(self.closed.max(1));
        (self.settings.margin * (1.0 + young) * (high - low)).max(least)
    }

    /// Returns the distance of a value from `ranges`: 1 at the bound.
    fn score(&self, ranges: &Ranges, value: f64) -> f64 {
        let Range { low, high } = ranges.edges;
        (value - high).max(low - value).max(0.0) / self.room(ranges)
    }

    /// Adds a value to the open bucket, and closes the bucket when it is full.
    fn feed(&mut self, value: f64) {
        // The first value has none before it, and `min` and `max` ignore a NaN.
        self.values.open = self.values.open.with(value);
        let Range { low, high } = self.levels.open;
        let (least, most) = (value.max(self.before), value.min(self.before));
        self.levels.open = Range { low: low.min(least), high: high.max(most) };
        self.before = value;
        self.in_open += 1;
        let in_bucket = (self.settings.window / BUCKETS as u32).max(1);
        let fed = self.closed.saturating_mul(in_bucket).saturating_add(self.in_open);
        self.mean += (value - self.mean) / f64::from(fed.clamp(1, self.settings.window.max(1)));
        if self.in_open >= in_bucket {
            self.values.close(self.closed);
            self.levels.close(self.closed);
            self.closed = self.closed.saturating_add(1);
            self.in_open = 0;
        }
    }

    /// Takes a sample of an unusual series.
    fn follow_unusual(&mut self, at: Timestamp, value: f64) {
        self.unusual = self.unusual.with(value);
        self.raised_for += 1;
        self.inside = if self.score <= CLEAR_RATIO { self.inside + 1 } else { 0 };
        let is_level = self.raised_for >= LEVEL_SAMPLES;
        if is_level {
            for ranges in [&mut self.values, &mut self.levels] {
                ranges.edges = ranges.edges.with(self.unusual.low).with(self.unusual.high);
            }
            self.score = 0.0;
        }
        if is_level || self.inside >= CLEAR_SAMPLES {
            (self.raised, self.since) = (false, at);
            (self.outside, self.far_outside) = (0, 0);
        }
    }

    /// Takes a sample of a usual series.
    fn follow_usual(&mut self, at: Timestamp, value: f64) {
        let is_far = self.score(&self.values, value) > 1.0;
        self.far_outside = if is_far { self.far_outside + 1 } else { 0 };
        if self.score <= 1.0 {
            self.outside = 0;
            self.feed(value);
            return;
        }
        if self.outside == 0 {
            self.since = at;
            self.unusual = Range::EMPTY;
        }
        self.outside += 1;
        self.unusual = self.unusual.with(value);
        let persist = self.settings.persist;
        if self.far_outside >= persist || self.outside > persist {
            (self.raised, self.raised_for, self.inside) = (true, 0, 0);
            return;
        }
        let (Range { low, high }, room) = (self.values.edges, self.room(&self.values));
        self.feed(value.clamp(low - room, high + room));
    }
}

/// The ranges of the last buckets, and the envelope of them.
#[derive(Clone, Debug)]
struct Ranges {
    buckets: [Range; BUCKETS],
    open: Range,
    edges: Range,
}

impl Ranges {
    const EMPTY: Self =
        Self { buckets: [Range::EMPTY; BUCKETS], open: Range::EMPTY, edges: Range::EMPTY };

    /// Closes the open bucket, the first one if `closed` is 0.
    fn close(&mut self, closed: u32) {
        // The levels of a series that alternates between two values are those values, the other way around.
        let Range { low, high } = self.open;
        self.buckets[closed as usize % BUCKETS] = Range { low: low.min(high), high: high.max(low) };
        self.open = Range::EMPTY;
        let edges = edges(&self.buckets[..BUCKETS.min(closed as usize + 1)]);
        let follow = |memory: f64, now: f64| memory + (now - memory) / f64::from(MEMORY_BUCKETS);
        let high = follow(self.edges.high, edges.high).max(edges.high);
        let low = follow(self.edges.low, edges.low).min(edges.low);
        // The first edges have no memory: infinite numbers make no mean.
        self.edges = if closed == 0 { edges } else { Range { low, high } };
    }
}

impl Detector for Envelope {
    fn take(&mut self, at: Timestamp, value: f64) -> bool {
        self.latest = value;
        if self.seen < self.settings.after || self.closed == 0 {
            self.seen = self.seen.saturating_add(1);
            self.since = at;
            self.feed(value);
            return false;
        }
        self.score = self.score(&self.levels, value);
        if self.raised {
            self.follow_unusual(at, value);
        } else {
            self.follow_usual(at, value);
        }
        self.raised
    }

    fn finding(&self) -> Finding {
        let (Range { low, high }, room) = (self.levels.edges, self.room(&self.levels));
        Finding {
            came: self.latest,
            expected: Expected {
                value: self.mean.clamp(low.min(high), high.max(low)),
                low: low - room,
                high: high + room,
            },
            score: self.score,
            since: self.since,
        }
    }
}

/// Returns the second lowest minimum and the second highest maximum; the first ones of few buckets.
fn edges(buckets: &[Range]) -> Range {
    let (mut first, mut second) = (Range::EMPTY, Range::EMPTY);
    for bucket in buckets {
        if bucket.high > first.high {
            (second.high, first.high) = (first.high, bucket.high);
        } else {
            second.high = second.high.max(bucket.high);
        }
        if bucket.low < first.low {
            (second.low, first.low) = (first.low, bucket.low);
        } else {
            second.low = second.low.min(bucket.low);
        }
    }
    if buckets.len() >= ROBUST_BUCKETS { second } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u32) -> Timestamp {
        Timestamp::from_nanos(i64::from(second) * 1_000_000_000)
    }

    /// Returns the seconds at which the state changes.
    fn changes(detector: &mut Envelope, values: impl IntoIterator<Item = f64>) -> Vec<u32> {
        let mut was = false;
        let mut found = Vec::new();
        for (second, value) in (0..).zip(values) {
            let is = detector.take(at(second), value);
            if is != was {
                found.push(second);
            }
            was = is;
        }
        found
    }

    #[test]
    fn a_burst_that_comes_back_is_usual_and_a_larger_one_is_not() {
        let usual = |s: u32| if s % 60 < 5 { 100.0 } else { f64::from(s % 3) };
        let larger = |s: u32| if (700..710).contains(&s) { 300.0 } else { usual(s) };
        let mut detector = Envelope::new(Settings::DEFAULT);
        assert_eq!(changes(&mut detector, (0..3000).map(usual)), [0_u32; 0]);
        // Two samples decide, and three that are inside end it.
        let mut detector = Envelope::new(Settings::DEFAULT);
        assert_eq!(changes(&mut detector, (0..3000).map(larger)), [701, 712]);
    }

    #[test]
    fn single_spikes_are_usual_and_widen_nothing() {
        let spikes = |s: u32| if s.is_multiple_of(97) { 1e6 } else { f64::from(s % 5) };
        let mut detector = Envelope::new(Settings::DEFAULT);
        let quiet = (0..200).map(|s| f64::from(s % 5));
        assert_eq!(changes(&mut detector, quiet.chain((1..96).map(spikes))), [0_u32; 0]);
        assert!(detector.finding().expected.high < 20.0, "{:?}", detector.finding());
    }

    #[test]
    fn a_series_that_alternates_is_usual() {
        let alternates = |s: u32| f64::from(s % 2) * 10.0;
        let mut detector = Envelope::new(Settings::DEFAULT);
        assert_eq!(changes(&mut detector, (0..2000).map(alternates)), [0_u32; 0]);
        let thirds = |s: u32| if s.is_multiple_of(3) { 1000.0 } else { 0.0 };
        let mut detector = Envelope::new(Settings::DEFAULT);
        assert_eq!(changes(&mut detector, (0..2000).map(thirds)), [0_u32; 0]);
    }

    #[test]
    fn a_lasting_level_becomes_usual_after_two_minutes() {
        let step = |s: u32| f64::from(s % 3) + if s < 500 { 0.0 } else { 50.0 };
        let mut detector = Envelope::new(Settings::DEFAULT);
        assert_eq!(changes(&mut detector, (0..2000).map(step)), [501, 501 + LEVEL_SAMPLES]);
    }

    #[test]
    fn the_second_extreme_of_many_buckets_is_an_edge() {
        let range = |n: i32| Range { low: f64::from(-n), high: f64::from(n) };
        let few: Vec<Range> = (1..=5).map(range).collect();
        assert_eq!(edges(&few), range(5));
        let many: Vec<Range> = (1..=6).map(range).rev().collect();
        assert_eq!(edges(&many), range(5));
    }
}
