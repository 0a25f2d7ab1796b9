//! The guard before every route: it counts requests and refuses those of web pages.
//!
//! A web page in a browser on this machine can make the browser send requests to the hub. Three headers expose them:
//! `Origin` and `Sec-Fetch-Site` tell the origin of a request, and `Host` reveals a page whose own name resolves to this
//! machine (DNS rebinding). Statements need a content type that a page can send to another site only after a preflight
//! request, which the hub refuses.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{HOST, HeaderName, HeaderValue, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::context::HttpContext;
use super::refusal::Refusal;

/// The header in which browsers tell how a request relates to its page.
static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(super) async fn check(
    State(context): State<Arc<HttpContext>>,
    request: Request,
    next: Next,
) -> Response {
    context.counts.request();
    let mut response = match is_foreign(request.headers(), context.address) {
        true => Refusal::foreign().into_response(),
        false => next.run(request).await,
    };
    if response.status().is_client_error() || response.status().is_server_error() {
        context.counts.refuse();
    }
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns true if a web page of another site made this request. `listener` is the address of the listener.
fn is_foreign(headers: &HeaderMap, listener: SocketAddr) -> bool {
    let text =
        |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(&HOST);
    if headers.get_all(HOST).iter().count() > 1 {
        return true;
    }
    // HTTP/1.0 does not require `Host`; browsers always send it.
    if listener.ip().is_loopback() && !host.is_none_or(is_this_machine) {
        return true;
    }
    if text(&SEC_FETCH_SITE).is_some_and(|site| site != "same-origin" && site != "none") {
        return true;
    }
    let is_other = |origin: &str| origin.split_once("://").map(|(_, authority)| authority) != host;
    text(&ORIGIN).is_some_and(is_other)
}

fn is_this_machine(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_web_pages_are_refused_and_those_of_programs_are_not() {
        let check = |here: &str, headers: &[(&str, &str)], expected: bool| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                let name: HeaderName = name.parse().expect("a name");
                map.append(name, value.parse().expect("a value"));
            }
            let here = here.parse().expect("an address");
            assert_eq!(is_foreign(&map, here), expected, "{here} {headers:?}");
        };
        let here = "127.0.0.1:7470";
        for host in ["127.0.0.1:7470", "localhost:7470", "LOCALHOST", "[::1]:7470", "127.8.9.1"] {
            check(here, &[("host", host)], false);
        }
        check(here, &[], false);
        for host in
            ["evil.example", "evil.example:7470", "10.0.0.1:7470", "localhost.evil.example", ""]
        {
            check(here, &[("host", host)], true);
        }
        check(here, &[("host", "localhost"), ("host", "localhost")], true);
        let with = |name, value, expected| check(here, &[("host", here), (name, value)], expected);
        with("origin", "http://127.0.0.1:7470", false);
        with("origin", "http://evil.example", true);
        with("origin", "null", true);
        with("origin", "http://127.0.0.1:8080", true);
        with("sec-fetch-site", "none", false);
        with("sec-fetch-site", "same-origin", false);
        with("sec-fetch-site", "same-site", true);
        with("sec-fetch-site", "cross-site", true);
        // A listener with a configured address may have names that it does not know.
        check("10.0.0.9:7470", &[("host", "hub1.example:7470")], false);
        check("10.0.0.9:7470", &[("host", "hub1"), ("origin", "http://evil.example")], true);
    }
}
