//! A rule as data.

use super::verdict::{Judging, Verdict};
use super::view::View;

/// A rule: a condition of a trace, with its documentation.
#[derive(Debug)]
pub struct Rule {
    /// The name of the finding.
    pub name: &'static str,
    /// The condition, with its thresholds.
    pub condition: &'static str,
    /// The inputs that it needs.
    pub inputs: &'static str,
    /// The advice: the change to make.
    pub advice: &'static str,
    pub(super) judge: fn(&View<'_>) -> Judging,
}

impl Rule {
    pub(super) fn judge(&self, view: &View<'_>) -> Verdict {
        let (Ok(verdict) | Err(verdict)) = (self.judge)(view);
        verdict.checked()
    }
}
