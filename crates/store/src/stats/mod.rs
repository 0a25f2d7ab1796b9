//! Summaries of many values in few numbers. Merging those of two parts gives that of the whole.
//!
//! [`Moments`] has count, mean, deviation, skewness and kurtosis; [`Sketch`] has quantiles;
//! [`Histogram`] is for plots. [`Distribution`] has all three of one resource.

mod moments;
mod sketch;
mod histogram;

pub use histogram::{Histogram, MAX_BINS};
pub use moments::Moments;
pub use sketch::{RELATIVE_ERROR, Sketch};

/// The values of one resource in many tasks.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// Count, mean, deviation, skewness, kurtosis.
    pub moments: Moments,
    /// Quantiles.
    pub sketch: Sketch,
    /// Counts of equal intervals.
    pub histogram: Histogram,
}

impl Distribution {
    /// Adds one value. Returns false, and ignores the value, if it is negative, not finite or above
    /// 10^18.
    pub fn add(&mut self, value: f64) -> bool {
        let is_valid = (0.0..=histogram::MAX_VALUE).contains(&value);
        if is_valid {
            self.moments.add(value);
            self.sketch.add(value);
            self.histogram.add(value);
        }
        is_valid
    }

    /// Returns [`Sketch::quantile`], limited to the extremes, which are exact.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let (min, max) = (self.moments.min()?, self.moments.max()?);
        Some(self.sketch.quantile(q)?.clamp(min, max))
    }

    /// Returns the histogram for people, with no more intervals than the number of values warrants.
    pub fn shape(&self) -> Histogram {
        let bins = (2.0 * (self.moments.count() as f64).cbrt()).ceil() as usize;
        self.histogram.coarsened(bins.min(MAX_BINS / 2))
    }

    /// Adds everything that was added to `other`.
    pub fn merge(&mut self, other: &Self) {
        self.moments.merge(&other.moments);
        self.sketch.merge(&other.sketch);
        self.histogram.merge(&other.histogram);
    }
}
