//! Refusals of requests about rankings.

use crate::control::Answer;

/// Refuses a request for a reason, with a hint.
pub(super) fn refused(error: String, hint: String) -> Answer {
    Answer::Refused { error, hint: Some(hint) }
}
