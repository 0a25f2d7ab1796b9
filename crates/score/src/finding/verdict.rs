//! The result of a rule.

use serde::{Deserialize, Serialize};
use skopos_model::task::amount;

/// The importance of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The job worked; a change saves resources.
    Note,
    /// The job lost much time or held much that it did not use.
    Warning,
    /// The job did not finish, or most of what it held was lost.
    Serious,
}

impl Severity {
    /// Returns the name, as in SQL and in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Serious => "serious",
        }
    }
}

/// A number on which a finding stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The name of the number: a resource, a metric, or a ratio of them.
    pub name: String,
    /// The value in the unit.
    pub value: f64,
    /// `bytes`, `seconds`; empty for counts and ratios.
    pub unit: String,
}

impl Evidence {
    pub(super) fn new(name: impl Into<String>, value: f64, unit: &str) -> Self {
        Self { name: name.into(), value, unit: unit.to_owned() }
    }

    /// Formats the value for people: `5.1 GiB`, `2 h 00 m`, `17`.
    pub fn shown(&self) -> String {
        amount(self.value, &self.unit)
    }
}

/// A condition that holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The importance.
    pub severity: Severity,
    /// The condition in a sentence.
    pub what: String,
    /// The numbers on which the finding stands.
    pub evidence: Vec<Evidence>,
}

/// The result of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The condition holds.
    Found(Found),
    /// The inputs are known, and the condition does not hold.
    Absent,
    /// The job cannot be judged, for this reason.
    Unknown(String),
}

impl Verdict {
    /// Returns the name, as in SQL and in documents.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Found(_) => "found",
            Self::Absent => "absent",
            Self::Unknown(_) => "unknown",
        }
    }

    pub(super) fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown(reason.into())
    }

    /// Returns the verdict, or `Unknown` if it has a number that is not finite.
    pub(super) fn checked(self) -> Self {
        match self {
            Self::Found(found) if found.evidence.iter().any(|e| !e.value.is_finite()) => {
                Self::unknown("an input is not a finite number")
            }
            other => other,
        }
    }
}

/// Ends a rule early: its input is missing, or its condition cannot hold.
pub(super) type Judging = Result<Verdict, Verdict>;

/// A verdict with the rule that gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The name of the rule.
    pub finding: &'static str,
    /// The result.
    pub verdict: Verdict,
    /// The advice of the rule: what to request or to change next time.
    pub advice: &'static str,
}
