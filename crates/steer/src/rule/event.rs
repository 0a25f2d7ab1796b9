//! Rows of a condition, and the events that follow from them.

use serde_json::{Map, Value};
use skopos_model::Timestamp;

/// A row of a condition's answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Name of the subject. Rows of one answer with equal names are one subject, of which the first row counts.
    pub subject: String,
    /// All columns of the row.
    pub values: Map<String, Value>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A subject begins to fire.
    Firing,
    /// A subject still fires, and its action is due again or late, or is tried again.
    StillFiring,
    /// A subject does not fire any more.
    Resolved,
    /// A subject changes too often; the actions of its changes are held back.
    Flapping,
    /// A subject that flapped has not changed for a while. It fires or is quiet, as [`Event::is_firing`] says.
    Steady,
    /// The condition cannot be evaluated.
    Failed,
    /// The condition is evaluated again.
    Recovered,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Firing,
        Self::StillFiring,
        Self::Resolved,
        Self::Flapping,
        Self::Steady,
        Self::Failed,
        Self::Recovered,
    ];

    /// Returns the name, such as `still_firing`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::StillFiring => "still_firing",
            Self::Resolved => "resolved",
            Self::Flapping => "flapping",
            Self::Steady => "steady",
            Self::Failed => "failed",
            Self::Recovered => "recovered",
        }
    }

    /// Returns the kind of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The decision about the action of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The action is due.
    Now,
    /// The limit of the rule holds it back.
    Limited,
    /// The subject flaps.
    Flaps,
    /// There is no action: the begin was not told either, or the event is about the rule itself.
    Silent,
}

impl Due {
    /// Returns the reason why the action is not due; `None` if it is.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Now => None,
            Self::Limited => Some("limit"),
            Self::Flaps => Some("flapping"),
            Self::Silent => Some("silent"),
        }
    }
}

/// An event of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// UNIX time of the event.
    pub at: Timestamp,
    /// The kind.
    pub kind: Kind,
    /// Name of the subject; empty for an event about the rule itself.
    pub subject: String,
    /// Time at which the subject came into the answer, or at which the evaluation began to fail.
    pub since: Timestamp,
    /// Whether the subject fires after the event.
    pub is_firing: bool,
    /// The decision about its action.
    pub due: Due,
    /// The latest row of the subject.
    pub values: Map<String, Value>,
    /// Reason of a failure; else empty.
    pub reason: String,
}
