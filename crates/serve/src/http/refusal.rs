//! Refusals: a status, and JSON with the error and a hint.

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use skopos_access::Denied;
use skopos_query::{Error, Position};

use skopos_term::Failure;

/// A refused request.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    body: Body,
}

/// `Refusal` in `docs/openapi.json`.
#[derive(Debug, Serialize)]
struct Body {
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Position of the error in the statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u64>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        let body = Body { error: error.into(), hint: None, line: None, column: None };
        Self { status, body }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.body.hint = Some(hint.into());
        self
    }

    /// Refuses a request that is not valid.
    pub(crate) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    /// Reports a failure inside the hub.
    pub(crate) fn internal(error: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }

    pub(crate) fn unknown_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "this path does not exist")
            .hint("/api/v1/openapi.json describes all paths")
    }

    pub(crate) fn wrong_method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not take this method")
            .hint("/api/v1/sql and /api/v1/join take POST, all other paths GET")
    }

    pub(crate) fn foreign() -> Self {
        Self::new(StatusCode::FORBIDDEN, "the request comes from a web page of another site")
            .hint("send it from a program, or to an address of this machine")
    }

    pub(crate) fn unknown_host() -> Self {
        Self::new(StatusCode::FORBIDDEN, "the request is for another host than this hub")
            .hint("use the address of the hub, or add the name to `hosts` in `[hub]` of its configuration")
    }

    pub(crate) fn another_user() -> Self {
        Self::new(StatusCode::FORBIDDEN, "this hub belongs to another user")
            .hint("its owner can give you a token: `skopos pki init`, then `skopos pki user NAME`")
    }

    pub(crate) fn wrong_token() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "the token is not valid, or not any more")
            .hint("`skopos pki user NAME` makes one, on the machine of the hub")
    }

    /// Refuses what the policy refuses.
    pub(crate) fn denied(denied: &Denied) -> Self {
        match denied.is_stranger {
            true => Self::new(StatusCode::UNAUTHORIZED, denied.to_string()).hint(
                "send `Authorization: Bearer TOKEN`, with a token from `skopos pki user NAME`, or the \
                 certificate of a node",
            ),
            false => Self::new(StatusCode::FORBIDDEN, denied.to_string()),
        }
    }

    pub(crate) fn too_many_connections() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too many connections are open")
    }

    pub(crate) fn too_many(what: &str) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, format!("too many {what} at one time"))
            .hint("try again in a moment")
    }

    pub(crate) fn too_slow(what: &str) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, format!("the {what} did not come in time"))
    }

    /// Returns the whole HTTP response, for connections that do not reach the router.
    pub(crate) fn as_text(&self) -> String {
        let body = self.body();
        let (status, length) = (self.status, body.len());
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
    }

    pub(crate) fn body(&self) -> String {
        serde_json::to_string(&self.body).unwrap_or_default()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let json = (CONTENT_TYPE, "application/json");
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => {
                (self.status, [json, (RETRY_AFTER, "1")], self.body()).into_response()
            }
            StatusCode::UNAUTHORIZED => {
                (self.status, [json, (WWW_AUTHENTICATE, "Bearer")], self.body()).into_response()
            }
            status => (status, [json], self.body()).into_response(),
        }
    }
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        let status = match error {
            Error::Denied(denied) => return Self::denied(denied),
            Error::Busy => StatusCode::TOO_MANY_REQUESTS,
            Error::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Error::Deadline(_) => StatusCode::GATEWAY_TIMEOUT,
            Error::Memory(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        };
        let mut refusal = Self::new(status, error.to_string());
        refusal.body.hint = error.hint();
        if let Some(Position { line, column }) = error.position() {
            (refusal.body.line, refusal.body.column) = (Some(line), Some(column));
        }
        refusal
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

/// Refuses a topic that is not valid.
impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let mut refusal = Self::bad(failure.message());
        refusal.body.hint = failure.hint_text().map(str::to_owned);
        refusal
    }
}
