//! The first four central moments, in one pass, mergeable.
//!
//! P. Pébay, "Formulas for Robust, One-Pass Parallel Computation of Covariances and Arbitrary-Order
//! Statistical Moments", Sandia National Laboratories, SAND2008-6212, 2008, equations 2.1 and 3.1:
//! the sums `M_p = Σ (x - mean)^p` of two parts give those of the whole without the values.

/// Count, extremes and central moments of many values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    count: u64,
    mean: f64,
    m2: f64,
    m3: f64,
    m4: f64,
    min: f64,
    max: f64,
}

impl Default for Moments {
    fn default() -> Self {
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { count: 0, mean: 0.0, m2: 0.0, m3: 0.0, m4: 0.0, min, max }
    }
}

impl Moments {
    /// Adds one value.
    pub fn add(&mut self, value: f64) {
        self.merge(&Self { count: 1, mean: value, min: value, max: value, ..Self::default() });
    }

    /// Adds everything that was added to `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let (a, b) = (self.count as f64, other.count as f64);
        let n = a + b;
        let delta = other.mean - self.mean;
        let (step, d2) = (delta / n, delta * delta);
        let m4 = self.m4
            + other.m4
            + d2 * d2 * a * b * (a * a - a * b + b * b) / (n * n * n)
            + 6.0 * d2 * (a * a * other.m2 + b * b * self.m2) / (n * n)
            + 4.0 * step * (a * other.m3 - b * self.m3);
        let m3 = self.m3
            + other.m3
            + d2 * delta * a * b * (a - b) / (n * n)
            + 3.0 * step * (a * other.m2 - b * self.m2);
        let m2 = self.m2 + other.m2 + d2 * a * b / n;
        *self = Self {
            count: self.count + other.count,
            mean: self.mean + b * step,
            m2,
            m3,
            m4,
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        };
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the least value; `None` without values.
    pub fn min(&self) -> Option<f64> {
        (self.count > 0).then_some(self.min)
    }

    /// Returns the greatest value; `None` without values.
    pub fn max(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max)
    }

    /// Returns the mean; `None` without values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }

    /// Returns the standard deviation, `√(M2 / (n - 1))`; `None` with fewer than two values.
    pub fn deviation(&self) -> Option<f64> {
        (self.count > 1).then(|| (self.m2 / (self.count - 1) as f64).sqrt())
    }

    /// Returns the skewness `g1 = √n M3 / M2^(3/2)`; `None` if all values are equal.
    pub fn skewness(&self) -> Option<f64> {
        self.varies().then(|| (self.count as f64).sqrt() * self.m3 / self.m2.powf(1.5))
    }

    /// Returns the **excess** kurtosis `g2 = n M4 / M2² - 3`, which is 0 for a normal distribution;
    /// `None` if all values are equal.
    pub fn kurtosis(&self) -> Option<f64> {
        self.varies().then(|| self.count as f64 * self.m4 / (self.m2 * self.m2) - 3.0)
    }

    /// Returns true if the values differ by more than rounding errors, whose shape is meaningless.
    fn varies(&self) -> bool {
        let rounding = f64::EPSILON * self.mean.abs();
        self.count > 1 && self.max > self.min && self.m2 > self.count as f64 * rounding * rounding
    }
}
