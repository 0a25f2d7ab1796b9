//! A question, by which equal ones are known.

use std::time::Duration;

use skopos_access::Caller;

/// A statement that is evaluated again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// The caller, whose answer it is.
    pub caller: Caller,
    /// The statement.
    pub sql: String,
    /// Minimum time between two evaluations, if it is not the usual one.
    pub every: Option<Duration>,
    /// Deadline of each evaluation.
    pub deadline: Duration,
}
