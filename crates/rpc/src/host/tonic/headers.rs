//! Headers: the context in and out, the timeout of a call, and the status of its end.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::callpath::ROOT;
use crate::context::{Context, RECORDED, has_others};
use crate::record::Status;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// Most digits of a timeout, by the specification of gRPC.
const MAX_TIMEOUT_DIGITS: usize = 8;

/// Reads the context of a request; `None` if its caller sends none that is valid.
pub(super) fn context(headers: &HeaderMap) -> Option<Context> {
    let parent = headers.get(TRACEPARENT)?.to_str().ok()?;
    Context::from_w3c(parent, tracestate(headers)).ok()
}

fn tracestate(headers: &HeaderMap) -> Option<&str> {
    headers.get(TRACESTATE)?.to_str().ok()
}

/// Returns `tracestate` if it has members of other systems.
pub(super) fn others(headers: &HeaderMap) -> Option<&str> {
    tracestate(headers).filter(|state| has_others(state))
}

/// Writes the context into the headers of a request; `others` are the members of other systems.
pub(super) fn insert(context: &Context, others: Option<&str>, headers: &mut HeaderMap) {
    let state = match others {
        Some(others) => HeaderValue::try_from(context.tracestate(Some(others))),
        None => HeaderValue::from_bytes(&context.member_bytes()),
    };
    for (name, value) in
        [(TRACEPARENT, HeaderValue::from_bytes(&context.traceparent_bytes())), (TRACESTATE, state)]
    {
        if let Ok(mut value) = value {
            // Each request has another value, so HTTP/2 is not to keep it in its table of headers: it would evict those that
            // come again.
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
}

/// Returns the status that `grpc-status` of headers or trailers means; `None` without that header.
pub(super) fn status(headers: &HeaderMap) -> Option<Status> {
    Some(match headers.get(GRPC_STATUS)?.as_bytes() {
        b"0" => Status::Ok,
        b"1" => Status::Cancelled,
        b"4" => Status::TimedOut,
        _ => Status::Error,
    })
}

/// Returns true if the body is of gRPC, so that its status follows in the trailers.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Returns the timeout of a call in ns; `None` without a valid one.
pub(super) fn timeout_ns(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > MAX_TIMEOUT_DIGITS {
        return None;
    }
    let unit_ns = match unit {
        "H" => 3_600_000_000_000,
        "M" => 60_000_000_000,
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1_000,
        "n" => 1,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit_ns)
}

/// Makes the context of a request whose caller sends none.
pub(super) fn new_request() -> Context {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = || SEED.hash_one(NEXT.fetch_add(1, Ordering::Relaxed)).max(1);
    Context {
        request_low: id(),
        request_high: id(),
        span: id(),
        callpath: ROOT,
        lamport: 0,
        order: 0,
        flags: RECORDED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn timeouts_are_read_by_the_specification() {
        let check =
            |text, expected| assert_eq!(timeout_ns(&of(GRPC_TIMEOUT, text)), expected, "{text}");
        check("1S", Some(1_000_000_000));
        check("250m", Some(250_000_000));
        // Longer than the clock counts is as good as never.
        check("99999999H", None);
        for text in ["", "S", "123456789S", "-1S", "1", "1x", "1 S"] {
            check(text, None);
        }
    }

    #[test]
    fn a_status_is_read_and_its_absence_too() {
        for (text, expected) in [
            ("0", Status::Ok),
            ("1", Status::Cancelled),
            ("4", Status::TimedOut),
            ("14", Status::Error),
            ("odd", Status::Error),
        ] {
            assert_eq!(status(&of(GRPC_STATUS, text)), Some(expected));
        }
        assert_eq!(status(&HeaderMap::new()), None);
    }

    #[test]
    fn a_context_survives_its_headers() {
        let context = new_request();
        let mut headers = HeaderMap::new();
        insert(&context, Some("vendor=1"), &mut headers);
        assert_eq!(super::context(&headers), Some(context));
        assert!(tracestate(&headers).is_some_and(|state| state.ends_with(",vendor=1")));
    }
}
