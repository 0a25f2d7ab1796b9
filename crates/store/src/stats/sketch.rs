//! Quantiles by a DDSketch (Masson, Rim and Lee, "DDSketch: A Fast and Fully-Mergeable Quantile
//! Sketch with Relative-Error Guarantees", PVLDB 12(12), 2019).

use sketches_ddsketch::{Config, DDSketch};

/// The greatest relative error of a quantile.
pub const RELATIVE_ERROR: f64 = 0.01;

/// The least value that is distinguished from 0. A byte and a nanosecond are larger.
const MIN_VALUE: f64 = 1e-9;

/// The most bins. From `MIN_VALUE` to 10^18 there are 3,110 bins of 2 %, so bins are never merged and the
/// bound of the error holds.
const MAX_BINS: u32 = 4096;

/// Quantiles of many values, which must not be negative.
#[derive(Clone)]
pub struct Sketch(DDSketch);

impl std::fmt::Debug for Sketch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sketch of {}", self.0.count())
    }
}

impl Default for Sketch {
    fn default() -> Self {
        Self(DDSketch::new(Config::new(RELATIVE_ERROR, MAX_BINS, MIN_VALUE)))
    }
}

impl Sketch {
    /// Adds one value.
    pub fn add(&mut self, value: f64) {
        self.0.add(value);
    }

    /// Adds everything that was added to `other`.
    pub fn merge(&mut self, other: &Self) {
        // Only a sketch with another configuration is refused, and all have the same.
        let _ = self.0.merge(&other.0);
    }

    /// Returns the value of rank `⌊q (n - 1)⌋`, counted from 0, within [`RELATIVE_ERROR`]. Returns `None`
    /// without values, or if `q` is not in 0..=1.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        self.0.quantile(q).ok().flatten()
    }
}
