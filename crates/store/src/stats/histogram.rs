//! A histogram that chooses its intervals by the values, and merges exactly.
//!
//! Intervals are `[k·2^e, (k+1)·2^e)`. The exponent `e` is the least with which all values fit into
//! [`MAX_BINS`] intervals, so it follows from their extremes alone. The histogram therefore depends
//! neither on the order of the values nor on their division into parts.

/// The most intervals: twice as many as fit into a line of a terminal.
pub const MAX_BINS: usize = 64;

/// The narrowest interval is 2^-30: a nanosecond.
const MIN_EXPONENT: i32 = -30;

/// The greatest value: an exabyte, or thirty billion years. No measurement exceeds it, and up to it the
/// number of an interval fits.
pub(super) const MAX_VALUE: f64 = 1e18;

/// Counts of equal intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    exponent: i32,
    /// Number of the first interval.
    first: i64,
    counts: Vec<u64>,
}

impl Histogram {
    /// Adds one value, from 0 to 10^18.
    pub fn add(&mut self, value: f64) {
        let finest = Self { exponent: exponent_of(value), first: 0, counts: vec![1] };
        let first = number(value, finest.exponent);
        self.merge(&Self { first, ..finest });
    }

    /// Adds everything that was added to `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        if self.counts.is_empty() {
            *self = other.clone();
            return;
        }
        let mut exponent = self.exponent.max(other.exponent);
        let range = loop {
            let (a, b) = (self.range(exponent), other.range(exponent));
            let range = (a.0.min(b.0), a.1.max(b.1));
            if range.1 - range.0 < MAX_BINS as i64 {
                break range;
            }
            exponent += 1;
        };
        let mut counts = vec![0; usize::try_from(range.1 - range.0 + 1).unwrap_or(MAX_BINS)];
        for part in [&*self, other] {
            for (at, count) in (part.first..).zip(&part.counts) {
                let number = coarser(at, exponent - part.exponent);
                if let Ok(slot) = usize::try_from(number - range.0) {
                    counts[slot] += count;
                }
            }
        }
        *self = Self { exponent, first: range.0, counts };
    }

    /// Returns the numbers of the first and the last interval if the intervals had this exponent.
    fn range(&self, exponent: i32) -> (i64, i64) {
        let shift = exponent - self.exponent;
        (coarser(self.first, shift), coarser(self.first + self.counts.len() as i64 - 1, shift))
    }

    /// Returns the histogram with at most `bins` wider intervals. For `n` values `2 n^(1/3)` intervals
    /// show the shape best (Rice's rule).
    #[must_use]
    pub fn coarsened(&self, bins: usize) -> Self {
        let mut exponent = self.exponent;
        let most = bins.max(1) as i64;
        while self.range(exponent).1 - self.range(exponent).0 >= most {
            exponent += 1;
        }
        let mut wide = Self { exponent, first: self.range(exponent).0, counts: Vec::new() };
        for (at, count) in (self.first..).zip(&self.counts) {
            let slot = coarser(at, exponent - self.exponent) - wide.first;
            let slot = usize::try_from(slot).unwrap_or(0);
            if wide.counts.len() <= slot {
                wide.counts.resize(slot + 1, 0);
            }
            wide.counts[slot] += count;
        }
        wide
    }

    /// Iterates over the intervals: start, start of the next one, number of values.
    pub fn bins(&self) -> impl Iterator<Item = (f64, f64, u64)> + '_ {
        let width = 2f64.powi(self.exponent);
        let starts = (self.first..).map(move |number| number as f64 * width);
        starts.zip(&self.counts).map(move |(start, count)| (start, start + width, *count))
    }
}

/// Returns the number of the interval that contains interval `number` and is `2^shift` times as wide.
fn coarser(number: i64, shift: i32) -> i64 {
    number >> shift.clamp(0, 63)
}

/// Returns the least exponent with which an `f64` represents the number and the end of a value's
/// interval exactly.
fn exponent_of(value: f64) -> i32 {
    let magnitude = if value >= 1.0 { value.log2().floor() as i32 } else { 0 };
    MIN_EXPONENT.max(magnitude - 51)
}

fn number(value: f64, exponent: i32) -> i64 {
    (value / 2f64.powi(exponent)).floor() as i64
}
