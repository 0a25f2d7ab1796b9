//! AIMD beside a rolling mean of changes: the paper's adaptive parameterized method (Apollo, section
//! 3.4.1).

use std::time::Duration;

use super::{Bounds, Finding, Policy};

/// The longest window. The paper's is 10; a metric's manner is out of date long before this.
pub const MAX_WINDOW: usize = 64;

/// Compares each change with `threshold` times the mean of the last changes. Within: the interval
/// grows by `step`. Beyond: it shrinks by `factor`.
#[derive(Clone, Debug)]
pub struct AimdWindow {
    bounds: Bounds,
    step: f64,
    factor: f64,
    threshold: f64,
    window: usize,
    /// The last changes, in a ring.
    changes: [f64; MAX_WINDOW],
    seen: usize,
    /// In seconds.
    interval: f64,
}

impl AimdWindow {
    /// Starts at the shortest interval. `threshold` is a share of the mean of the last `window`
    /// changes, of which there are at least one and at most [`MAX_WINDOW`].
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

    /// The mean of the changes in the window; 0 before the first.
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
        // The public implementation asks for less than the mean, so that a constant metric, whose
        // changes are 0 like their mean, is polled ever faster.
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
