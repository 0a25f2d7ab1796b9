//! Additive increase, multiplicative decrease: the simple parameterized method of the paper
//! (Apollo, section 3.4.1).

use std::time::Duration;

use super::{Bounds, Finding, Policy};

/// Compares each change with a threshold. If the change is within the threshold, the interval grows
/// by `step`; otherwise it shrinks by `factor`.
#[derive(Clone, Debug)]
pub struct Aimd {
    bounds: Bounds,
    step: f64,
    factor: f64,
    threshold: f64,
    /// In seconds.
    interval: f64,
}

impl Aimd {
    /// Creates a policy that starts at the shortest interval. `threshold` is in units of the
    /// tolerance.
    pub fn new(bounds: Bounds, step: Duration, factor: f64, threshold: f64) -> Self {
        let interval = bounds.min.as_secs_f64();
        Self { bounds, step: step.as_secs_f64(), factor, threshold, interval }
    }
}

impl Policy for Aimd {
    fn name(&self) -> &'static str {
        "aimd"
    }

    fn next(&mut self, found: &Finding) -> Duration {
        // A change that equals the threshold is within it, so a threshold of 0 lets a constant
        // metric slow down. A poll without a value (NaN) is within it too.
        let beyond = found.change > self.threshold;
        let wanted = if beyond { self.interval * self.factor } else { self.interval + self.step };
        let interval = self.bounds.clamp(wanted);
        self.interval = interval.as_secs_f64();
        interval
    }
}
