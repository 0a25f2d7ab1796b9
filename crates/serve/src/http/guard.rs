//! The guard before every route: it counts requests, finds out who asks, and refuses web pages and whoever the policy
//! refuses.
//!
//! A web page in a browser can make the browser send requests to the hub. Three headers expose them: `Origin` and
//! `Sec-Fetch-Site` tell the origin of a request, and `Host` reveals a page whose own name resolves to this machine (DNS
//! rebinding): it must be the address at which the request came in, or a name of `[hub] hosts`. Statements need a content
//! type that a page can send to another site only after a preflight request, which the hub refuses.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{HOST, HeaderName, HeaderValue, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use skopos_access::{Action, Caller, may};

use super::context::HttpContext;
use super::refusal::Refusal;
use crate::listen::Client;

/// The header in which browsers tell how a request relates to its page.
static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(super) async fn check(
    State(context): State<Arc<HttpContext>>,
    request: Request,
    next: Next,
) -> Response {
    context.counts.request();
    let mut response = match admitted(&context, request).await {
        Err(refusal) => refusal.into_response(),
        Ok(request) => next.run(request).await,
    };
    if response.status().is_client_error() || response.status().is_server_error() {
        context.counts.refuse();
    }
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The address of this machine at which a request came in.
#[derive(Clone, Copy)]
pub(super) struct LocalAddress(pub(super) IpAddr);

/// The address that a request came from.
#[derive(Clone, Copy)]
pub(super) struct PeerAddress(pub(super) IpAddr);

/// Returns a request with its [`Caller`], or its refusal.
async fn admitted(context: &HttpContext, mut request: Request) -> Result<Request, Refusal> {
    let here = request.extensions().get::<LocalAddress>();
    // Without an address, the connection broke before it was known.
    let here = here.ok_or_else(Refusal::unknown_host)?.0;
    if let Some(refusal) = refusal(request.headers(), here, &context.hosts) {
        return Err(refusal);
    }
    let caller = context.admittance.caller(request.headers(), request.extensions()).await;
    let caller = caller.ok_or_else(Refusal::wrong_token)?;
    if request.uri().path() == "/api/v1/join" {
        // The route asks the policy itself, for the node that it is about. Whoever has no token is not waited for.
        match may(&caller, Action::Join { node: "" }) {
            Err(denied) if denied.is_stranger => return Err(Refusal::denied(&denied)),
            _ => {}
        }
    } else {
        let action = match request.uri().path() {
            "/healthz" | "/api/v1/openapi.json" | "/api/v1/authority" => Action::ReadService,
            _ => Action::ReadFacts,
        };
        may(&caller, action).map_err(|denied| Refusal::denied(&denied))?;
    }
    if let (Some(client), false) =
        (request.extensions().get::<Client>(), caller == Caller::Stranger)
    {
        client.introduce();
    }
    request.extensions_mut().insert(caller);
    Ok(request)
}

/// Returns the refusal of a request that a web page of another site made, or that is for another host than this one.
/// `hosts` are names of this one, beside the address `here` at which the request came in.
fn refusal(headers: &HeaderMap, here: IpAddr, hosts: &[String]) -> Option<Refusal> {
    let text =
        |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(&HOST);
    if headers.get_all(HOST).iter().count() > 1 {
        return Some(Refusal::foreign());
    }
    // HTTP/1.0 does not require `Host`; browsers always send it.
    if let Some(host) = host
        && !is_own(host, here, hosts)
    {
        return Some(Refusal::unknown_host());
    }
    let is_other = |origin: &str| origin.split_once("://").map(|(_, authority)| authority) != host;
    let is_foreign = text(&SEC_FETCH_SITE)
        .is_some_and(|site| site != "same-origin" && site != "none")
        || text(&ORIGIN).is_some_and(is_other);
    is_foreign.then(Refusal::foreign)
}

/// Returns true if `host` names this machine at `here`, or is one of `hosts`.
fn is_own(host: &str, here: IpAddr, hosts: &[String]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    let here = here.to_canonical();
    let is_here = match name.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical() == here || ip.is_loopback() && here.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost") && here.is_loopback(),
    };
    is_here || hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
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
            let address = here.parse().expect("an address");
            let refusal = refusal(&map, address, &["hub1.example".to_owned()]);
            assert_eq!(refusal.is_some(), expected, "{here} {headers:?}");
        };
        let here = "127.0.0.1";
        for host in [
            "127.0.0.1:7470",
            "localhost:7470",
            "LOCALHOST",
            "[::1]:7470",
            "127.8.9.1",
            "Hub1.Example:7470",
        ] {
            check(here, &[("host", host)], false);
        }
        check(here, &[], false);
        for host in [
            "evil.example",
            "evil.example:7470",
            "10.0.0.1:7470",
            "localhost.evil.example",
            "hub1.example.evil.example",
            "127.0.0.1.evil.example",
            "",
        ] {
            check(here, &[("host", host)], true);
        }
        check(here, &[("host", "localhost"), ("host", "localhost")], true);
        let with = |name, value, expected| check(here, &[("host", here), (name, value)], expected);
        with("origin", "http://127.0.0.1", false);
        with("origin", "http://evil.example", true);
        with("origin", "null", true);
        with("origin", "http://127.0.0.1:8080", true);
        with("sec-fetch-site", "none", false);
        with("sec-fetch-site", "same-origin", false);
        with("sec-fetch-site", "same-site", true);
        with("sec-fetch-site", "cross-site", true);
        // At an address of the network, a page can give its own name this address.
        let there = "10.0.0.9";
        check(there, &[("host", "10.0.0.9:7470")], false);
        check(there, &[("host", "hub1.example:7470")], false);
        for host in ["evil.example:7470", "localhost:7470", "127.0.0.1", "10.0.0.8"] {
            check(there, &[("host", host)], true);
        }
        check(there, &[("host", "hub1.example"), ("origin", "http://evil.example")], true);
        check("::ffff:10.0.0.9", &[("host", "10.0.0.9")], false);
        check("fd00::1", &[("host", "[fd00::1]:7470")], false);
    }
}
