//! A trace and the errors of its predictions.

use skopos_score::delphi::{Errors, Evaluation};

/// The result in place of a ratio to a method without any error.
const NO_RATIO: f64 = 1e6;

/// A trace and the errors of its predictions.
pub(super) struct Judged {
    pub(super) name: String,
    /// The folder of a recorded trace; `None` for a made-up one.
    pub(super) group: Option<String>,
    pub(super) unit: String,
    pub(super) result: Evaluation,
}

impl Judged {
    /// The error of the better of last value and linear.
    pub(super) fn best(&self) -> f64 {
        self.result.last_value.mae.min(self.result.linear.mae)
    }

    /// The error of the shown predictions, divided by that of the better of last value and linear.
    pub(super) fn ratio(&self) -> f64 {
        self.ratio_of(self.result.shown.mae)
    }

    /// The error of a method, divided by that of the better of last value and linear.
    pub(super) fn ratio_of(&self, mae: f64) -> f64 {
        let best = self.best();
        if mae > best {
            (mae / best).min(NO_RATIO)
        } else if best > 0.0 {
            mae / best
        } else {
            1.0
        }
    }
}

/// The geometric mean of ratios; a ratio below a thousandth counts as a thousandth.
pub(super) fn geometric_mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let (mut logs, mut count) = (0.0, 0.0);
    for ratio in ratios {
        logs += f64::ln(ratio.max(1e-3));
        count += 1.0;
    }
    f64::exp(logs / count)
}

/// The errors of a method in an evaluation.
pub(super) type Method = fn(&Evaluation) -> &Errors;
