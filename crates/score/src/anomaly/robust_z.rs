//! Detects values far from the median of the last samples, relative to their usual distance from
//! it.
//!
//! `z = (value - median) / spread` over a window of the samples before, where the spread is the
//! median absolute deviation times 1.4826, which is the standard deviation of normal noise (Hampel
//! 1974; Iglewicz and Hoaglin, *How to Detect and Handle Outliers*, 1993). Outliers in up to half
//! of the window move neither. Every sample enters the window, so a new level is usual after half a
//! window.
//!
//! If more than half of the window are equal, the median absolute deviation is zero, and the
//! standard deviation replaces it: a burst on a quiet series is then unusual if fewer than one
//! sample in 25 are bursts. For whole numbers that rarely differ by more than one, the deviation is
//! a whole number too, so their spread may be half too large.
//!
//! The window is kept sorted: a sample costs one move of memory and three binary searches.

use skopos_model::Timestamp;

use super::{Detector, Expected, Finding, spread};

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The number of samples to compare with; judging begins with half of them.
    pub window: usize,
    /// The `|z|` from which a value is unusual.
    pub threshold: f64,
    /// The `|z|` at which a value is usual again.
    pub clear: f64,
    /// The least spread, in the unit of the value.
    pub min_spread: f64,
}

impl Settings {
    /// 100 samples estimate the spread to about 12 %. Normal noise then crosses 5 about three times
    /// in 100,000 samples, and 99 % of spikes of 8 standard deviations do; with 5.5, no noise and
    /// 98 % of the spikes do.
    pub const DEFAULT: Self = Self { window: 100, threshold: 5.0, clear: 3.0, min_spread: 0.0 };

    /// The shortest window with a meaningful median absolute deviation.
    pub const MIN_WINDOW: usize = 16;
    /// The longest window: four minutes at one sample a second, and 4 KiB per vertex.
    pub const MAX_WINDOW: usize = 256;
}

/// Standard deviations in one median absolute deviation of normal noise.
const NORMAL: f64 = 1.4826;

/// The detector.
#[derive(Clone, Debug)]
pub struct RobustZ {
    settings: Settings,
    /// The samples in the order of their arrival, starting at `oldest`.
    window: Vec<f64>,
    oldest: usize,
    sorted: Vec<f64>,
    median: f64,
    spread: f64,
    latest: f64,
    raised: bool,
    since: Timestamp,
}

impl RobustZ {
    /// Creates a detector without samples.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            window: Vec::with_capacity(settings.window),
            oldest: 0,
            sorted: Vec::with_capacity(settings.window),
            median: 0.0,
            spread: 0.0,
            latest: 0.0,
            raised: false,
            since: Timestamp::default(),
        }
    }

    fn z(&self) -> f64 {
        if self.spread > 0.0 { (self.latest - self.median) / self.spread } else { 0.0 }
    }

    fn remember(&mut self, value: f64) {
        let upper = self.sorted.partition_point(|x| *x < value);
        if self.window.len() < self.settings.window {
            self.window.push(value);
            self.sorted.insert(upper, value);
            return;
        }
        let leaving = std::mem::replace(&mut self.window[self.oldest], value);
        self.oldest += 1;
        if self.oldest == self.settings.window {
            self.oldest = 0;
        }
        let hole = self.sorted.partition_point(|x| *x < leaving);
        // Only the samples between the hole and the new position move.
        if hole < upper {
            self.sorted.copy_within(hole + 1..upper, hole);
            self.sorted[upper - 1] = value;
        } else {
            self.sorted.copy_within(upper..hole, upper + 1);
            self.sorted[upper] = value;
        }
    }

    fn spread(&self, median: f64) -> f64 {
        let least = spread::least(self.settings.min_spread, median);
        let deviation = median_deviation(&self.sorted, median);
        let spread = if deviation > 0.0 {
            NORMAL * deviation
        } else {
            let squares = self.sorted.iter().map(|x| (x - median).powi(2)).sum::<f64>();
            (squares / self.sorted.len() as f64).sqrt()
        };
        spread.max(least)
    }
}

impl Detector for RobustZ {
    fn take(&mut self, at: Timestamp, value: f64) -> bool {
        self.latest = value;
        if self.sorted.len() >= self.settings.window / 2 {
            self.median = median(&self.sorted);
            self.spread = self.spread(self.median);
            let z = self.z().abs();
            let raised =
                z > if self.raised { self.settings.clear } else { self.settings.threshold };
            if raised != self.raised {
                (self.raised, self.since) = (raised, at);
            }
        }
        self.remember(value);
        self.raised
    }

    fn finding(&self) -> Finding {
        let room = self.settings.threshold * self.spread;
        Finding {
            came: self.latest,
            expected: Expected {
                value: self.median,
                low: self.median - room,
                high: self.median + room,
            },
            score: self.z().abs() / self.settings.threshold,
            since: self.since,
        }
    }
}

/// Returns the median of a sorted slice that is not empty.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// Returns the median of `|x - median|`; for an even number of samples, the upper of the two in the
/// middle.
///
/// The deviations to the left and to the right of the middle are sorted already, so the smallest
/// ones are the first few of two sorted lists; a binary search finds how many of them lie on the
/// left.
fn median_deviation(sorted: &[f64], median: f64) -> f64 {
    let (left, right) = sorted.split_at(sorted.len() / 2);
    let near_left = |i: usize| median - left[left.len() - 1 - i];
    let near_right = |i: usize| right[i] - median;
    let wanted = sorted.len() / 2 + 1;
    let (mut low, mut high) = (wanted.saturating_sub(right.len()), wanted.min(left.len()));
    while low < high {
        let from_left = low + (high - low) / 2;
        // Too few from the left: the next one there is nearer than the last one from the right.
        if near_left(from_left) < near_right(wanted - from_left - 1) {
            low = from_left + 1;
        } else {
            high = from_left;
        }
    }
    let farthest_left = if low > 0 { near_left(low - 1) } else { 0.0 };
    let farthest_right = if wanted > low { near_right(wanted - low - 1) } else { 0.0 };
    farthest_left.max(farthest_right)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Small numbers, so that many are equal.
        #[test]
        fn the_sorted_window_equals_a_window_sorted_anew(
            values in prop::collection::vec((-20i8..20).prop_map(f64::from), 1..200),
        ) {
            let mut detector = RobustZ::new(Settings { window: 16, ..Settings::DEFAULT });
            for (at, value) in values.iter().enumerate() {
                detector.take(Timestamp::from_nanos(at as i64), *value);
                let mut sorted = values[(at + 1).saturating_sub(16)..=at].to_vec();
                sorted.sort_by(f64::total_cmp);
                prop_assert_eq!(&detector.sorted, &sorted);
                let median = median(&sorted);
                let mut deviations: Vec<f64> = sorted.iter().map(|x| (x - median).abs()).collect();
                deviations.sort_by(f64::total_cmp);
                prop_assert_eq!(median_deviation(&sorted, median), deviations[sorted.len() / 2]);
            }
        }
    }
}
