//! A rule as data.

use super::verdict::{Judging, Verdict};
use super::view::JobView;

/// A rule: a condition of a job, with its documentation.
#[derive(Debug)]
pub struct Rule {
    /// The name of the finding.
    pub name: &'static str,
    /// The condition, with its thresholds.
    pub condition: &'static str,
    /// The inputs that it needs.
    pub inputs: &'static str,
    /// The advice: what to request or to change next time.
    pub advice: &'static str,
    pub(super) judge: fn(&JobView) -> Judging,
}

impl Rule {
    /// Applies the rule to a job.
    pub fn judge(&self, view: &JobView) -> Verdict {
        let (Ok(verdict) | Err(verdict)) = (self.judge)(view);
        verdict.checked()
    }
}
