//! The result of a rule.

use serde::Serialize;

use crate::analysis::blocks::Estimate;

/// A number on which a finding stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// The name of the number.
    pub name: String,
    /// The value in the unit.
    pub value: f64,
    /// `ns`, `bytes`, `share` (of 1), or empty for counts and ratios.
    pub unit: &'static str,
}

impl Evidence {
    pub(super) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit }
    }
}

/// A change of the configuration, with its predicted gain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fix {
    /// The key of the configuration, such as `execution_streams`.
    pub key: String,
    /// The value now, if the process recorded it.
    pub now: Option<String>,
    /// The value to set.
    pub value: String,
    /// The share of the cumulative end-to-end time of the callpath that the change saves, with its 95 % interval. `None`
    /// if no model predicts it.
    pub gain: Option<Estimate>,
    /// The model and its assumptions, in a sentence.
    pub model: &'static str,
}

/// A condition that holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The condition in a sentence.
    pub what: String,
    /// The callpath that suffers most, outermost name first; empty if the condition is of a process.
    pub callpath: Vec<String>,
    /// The processes whose configuration is to change.
    pub processes: Vec<String>,
    /// The numbers on which the finding stands.
    pub evidence: Vec<Evidence>,
    /// The changes, the best first.
    pub fixes: Vec<Fix>,
    /// The share of the end-to-end time of all root calls that the best change saves; it ranks the findings.
    pub saves: Estimate,
}

/// The result of a rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// The condition holds.
    Found(Found),
    /// The inputs are known, and the condition does not hold.
    Absent,
    /// The trace cannot be judged, for this reason.
    Unknown {
        /// The reason.
        reason: String,
    },
}

impl Verdict {
    pub(super) fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown { reason: reason.into() }
    }

    /// Returns the verdict, or `Unknown` if it has a number that is not finite.
    pub(super) fn checked(self) -> Self {
        match self {
            Self::Found(found)
                if found.evidence.iter().any(|e| !e.value.is_finite())
                    || !found.saves.value.is_finite() =>
            {
                Self::unknown("an input is not a finite number")
            }
            other => other,
        }
    }
}

/// Ends a rule early: its input is missing, or its condition cannot hold.
pub(super) type Judging = Result<Verdict, Verdict>;

/// A verdict with the rule that gave it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The name of the rule.
    pub finding: &'static str,
    /// The result.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The advice of the rule.
    pub advice: &'static str,
}
