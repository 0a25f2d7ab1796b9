//! Errors as gRPC statuses: a code, from which drivers choose an exception, and the text with its hint.

use skopos_access::Denied;
use skopos_query::Error;
use tonic::{Code, Status};

/// Returns the status of a failed statement.
pub(super) fn of(error: &Error) -> Status {
    let code = match error {
        Error::Denied(denied) => return self::denied(denied),
        Error::UnknownName { .. } => Code::NotFound,
        Error::NotAQuery(_) => Code::Unimplemented,
        Error::Deadline(_) => Code::DeadlineExceeded,
        Error::TooManyRows(_) | Error::Memory(_) | Error::Busy => Code::ResourceExhausted,
        _ => Code::InvalidArgument,
    };
    with_hint(code, &error.to_string(), error.hint().as_deref())
}

/// Returns the status that refuses what the policy refuses.
pub(super) fn denied(denied: &Denied) -> Status {
    let hint = "send the header `authorization: Bearer TOKEN`, with a token from `skopos pki user NAME`, or show the \
                certificate of a node";
    match denied.is_stranger {
        true => with_hint(Code::Unauthenticated, &denied.to_string(), Some(hint)),
        false => with_hint(Code::PermissionDenied, &denied.to_string(), None),
    }
}

/// Returns a status with a text and a hint.
pub(super) fn with_hint(code: Code, text: &str, hint: Option<&str>) -> Status {
    match hint {
        Some(hint) => Status::new(code, format!("{text}\nhint: {hint}")),
        None => Status::new(code, text),
    }
}

/// Returns the status that refuses a change.
pub(super) fn refused_write() -> Status {
    let hint = "to publish values, use `skopos publish` or the library";
    with_hint(
        Code::Unimplemented,
        "only queries are answered here: nothing can be written",
        Some(hint),
    )
}

/// Returns the status for the handle of an unknown statement.
pub(super) fn unknown_handle() -> Status {
    let hint = "prepare the statement again: the hub was restarted, or the statement was unused for an hour";
    with_hint(Code::NotFound, "the prepared statement does not exist", Some(hint))
}
