//! Errors as gRPC tells them: a code that clients make an exception of, and the text with its hint.

use skopos_query::Error;
use tonic::{Code, Status};

/// What went wrong with a question.
pub(super) fn of(error: &Error) -> Status {
    let code = match error {
        Error::UnknownName { .. } => Code::NotFound,
        Error::NotAQuery(_) => Code::Unimplemented,
        Error::Deadline(_) => Code::DeadlineExceeded,
        Error::TooManyRows(_) | Error::Memory(_) => Code::ResourceExhausted,
        _ => Code::InvalidArgument,
    };
    with_hint(code, &error.to_string(), error.hint().as_deref())
}

/// A text and what to do about it.
pub(super) fn with_hint(code: Code, text: &str, hint: Option<&str>) -> Status {
    match hint {
        Some(hint) => Status::new(code, format!("{text}\nhint: {hint}")),
        None => Status::new(code, text),
    }
}

/// Whoever would change something is told why not.
pub(super) fn refused_write() -> Status {
    let hint = "what a program measures is published with `skopos publish` or the library";
    with_hint(
        Code::Unimplemented,
        "only questions are answered here: nothing can be written",
        Some(hint),
    )
}

/// A handle that is none, or of nothing that is held.
pub(super) fn unknown_handle() -> Status {
    let hint = "prepare the statement again: the hub began anew, or nobody used it for an hour";
    with_hint(Code::NotFound, "there is no such prepared statement", Some(hint))
}
