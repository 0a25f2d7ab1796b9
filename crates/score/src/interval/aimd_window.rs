//! AIMD relative to a rolling mean of changes: the adaptive parameterized method of the paper
//! (Apollo, section 3.4.1).

use std::time::Duration;

use super::{Bounds, Finding, Policy};

/// The longest window. The paper uses 10; the behaviour of a metric is out of date long before 64
/// changes.
pub const MAX_WINDOW: usize = 64;

/// Compares each change with `threshold` times the mean of the last changes. If the change is
/// within that, the interval grows by `step`; otherwise it shrinks by `factor`.
#[derive(Clone, Debug)]
pub struct AimdWindow {
    bounds: Bounds,
    step: f64,
    factor: f64,
    threshold: f64,
    window: usize,
    /// The last changes, as a ring.
    changes: [f64; MAX_WINDOW],
    seen: usize,
    /// In seconds.
    interval: f64,
}

impl AimdWindow {
    /// Creates a policy that starts at the shortest interval. `threshold` is a share of the mean of
    /// the last `window` changes; the window has at least 1 and at most [`MAX_WINDOW`] changes.
    pub fn new(bounds: Bounds, step: Duration, factor: f64, threshold: f64, window: usize) -> Self {
        Self {
            bounds,
            step: step.as_secs_f64(),
            factor,
            threshold,
            window: window.clamp(1, MAX_WINDOW),
            changes: [0.0; MAX_WINDOW],
            seen: 0,
            interval: bounds.min.as_secs_f64(),
        }
    }

    /// Returns the mean of the changes in the window; 0 before the first.
    fn mean(&self) -> f64 {
        let known = self.seen.min(self.window);
        if known == 0 { 0.0 } else { self.changes[..known].iter().sum::<f64>() / known as f64 }
    }
}

impl Policy for AimdWindow {
    fn name(&self) -> &'static str {
        "aimd-window"
    }

    fn next(&mut self, found: &Finding) -> Duration {
        // The public implementation tests for less than the mean, so it polls a constant metric,
        // whose changes and mean are 0, ever faster.
        let beyond = found.change > self.threshold * self.mean();
        if found.change.is_finite() {
            self.changes[self.seen % self.window] = found.change;
            self.seen += 1;
        }
        let wanted = if beyond { self.interval * self.factor } else { self.interval + self.step };
        let interval = self.bounds.clamp(wanted);
        self.interval = interval.as_secs_f64();
        interval
    }
}
