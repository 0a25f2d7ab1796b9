//! Quantiles by a DDSketch (Masson, Rim and Lee, "DDSketch: A Fast and Fully-Mergeable Quantile
//! Sketch with Relative-Error Guarantees", PVLDB 12(12), 2019).

use sketches_ddsketch::{Config, DDSketch};

/// A quantile is this far from the true one at most, as a share of it.
pub const RELATIVE_ERROR: f64 = 0.01;

/// Of a value below this one is known that it is small: a byte and a nanosecond are larger.
const MIN_VALUE: f64 = 1e-9;

/// From `MIN_VALUE` to 10^18 are 3,110 bins of 2 %, so none are ever merged and the bound holds.
const MAX_BINS: u32 = 4096;

/// Quantiles of many values, none of them negative.
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

    /// Adds all that `other` was given.
    pub fn merge(&mut self, other: &Self) {
        // It refuses sketches of another configuration only, and there is one.
        let _ = self.0.merge(&other.0);
    }

    /// The value of rank `⌊q (n - 1)⌋`, from 0 on, within [`RELATIVE_ERROR`] of it. `None` without
    /// values, or if `q` is not in 0..=1.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        self.0.quantile(q).ok().flatten()
    }
}
