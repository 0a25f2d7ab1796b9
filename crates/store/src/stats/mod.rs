//! Many values in few numbers, made so that what two parts say makes what the whole says.
//!
//! [`Moments`] are count, mean, deviation, skewness and kurtosis; [`Sketch`] gives quantiles;
//! [`Histogram`] is what a plot shows. [`Distribution`] is all three of one resource.

mod moments;
mod sketch;
mod histogram;

pub use histogram::{Histogram, MAX_BINS};
pub use moments::Moments;
pub use sketch::{RELATIVE_ERROR, Sketch};

/// What many tasks used of one resource.
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
    /// Adds one value. One that is negative or not finite is not taken, and `false` is returned.
    pub fn add(&mut self, value: f64) -> bool {
        let is_taken = (0.0..=histogram::MAX_VALUE).contains(&value);
        if is_taken {
            self.moments.add(value);
            self.sketch.add(value);
            self.histogram.add(value);
        }
        is_taken
    }

    /// [`Sketch::quantile`], and never beyond the extremes, which are known exactly.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let (min, max) = (self.moments.min()?, self.moments.max()?);
        Some(self.sketch.quantile(q)?.clamp(min, max))
    }

    /// The histogram as a person reads it: as many intervals as the values are good for.
    pub fn shape(&self) -> Histogram {
        let bins = (2.0 * (self.moments.count() as f64).cbrt()).ceil() as usize;
        self.histogram.coarsened(bins.min(MAX_BINS / 2))
    }

    /// Adds all that `other` was given.
    pub fn merge(&mut self, other: &Self) {
        self.moments.merge(&other.moments);
        self.sketch.merge(&other.sketch);
        self.histogram.merge(&other.histogram);
    }
}
