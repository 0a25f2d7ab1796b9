//! The hub's HTTP door: SQL, latest values and their changes, and what Prometheus scrapes.
//! `docs/openapi.json` is its description, which a test holds it to.
//!
//! # Invariants
//! - Who is let in says `listen`.
//! - No web page can ask: see `guard`.
//! - Everything that comes is bounded, in bytes, in number and in time; everything that is refused is
//!   counted, and says why in JSON, but for what is no HTTP.
//! - Whoever goes away is not answered, and what was computed for them ends.
//!
//! Read in this order: this file, `connection`, `guard`, `refusal`, then a file an answer.

mod connection;
mod guard;
mod refusal;
mod small;
mod sql;
pub(crate) mod parameters;
mod get;
mod watch;
mod metrics;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use self::refusal::Refusal;
use crate::listen::{Kind, TcpDoor};
use skopos_hub::Inside;
use skopos_hub::config::HttpAt;
use skopos_hub::counts::Counts;
use skopos_term::Failure;

/// Connections at one time: more than there are who ask and watch, since browsers and pools keep some.
const MAX_CONNECTIONS: u64 = 512;

/// Questions that are computed at one time; point reads are none. More would only take turns.
const MAX_QUERIES: usize = 32;

/// Whoever is told changes at one time: dashboards and programs of a site.
const MAX_WATCHERS: usize = 128;

/// What requests are answered from.
struct Desk {
    inside: Arc<Inside>,
    counts: Arc<Counts>,
    queries: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
    /// Where it listens.
    at: SocketAddr,
}

/// Listens there, or where it is usual.
///
/// # Errors
/// The address that was asked for cannot be had.
pub(crate) fn open(
    asked: Option<HttpAt>,
    inside: Arc<Inside>,
    counts: Arc<Counts>,
    runtime: &Handle,
) -> Result<TcpDoor, Failure> {
    let kind = Kind { scheme: "http", option: "--http", most: MAX_CONNECTIONS };
    TcpDoor::open(&kind, asked, counts.clone(), runtime, |incoming| {
        let queries = Arc::new(Semaphore::new(MAX_QUERIES));
        let watchers = Arc::new(Semaphore::new(MAX_WATCHERS));
        let desk = Arc::new(Desk { inside, counts, queries, watchers, at: incoming.at() });
        connection::serve(incoming, desk.clone(), routes(desk))
    })
}

fn routes(desk: Arc<Desk>) -> Router {
    let guard = axum::middleware::from_fn_with_state(desk.clone(), guard::check);
    let sql_limit = DefaultBodyLimit::max(sql::MAX_BODY_BYTES);
    Router::new()
        .route("/api/v1/sql", post(sql::answer).layer(sql_limit))
        .route("/api/v1/get", get(get::answer))
        .route("/api/v1/watch", get(watch::answer))
        .route("/api/v1/nodes", get(small::nodes))
        .route("/api/v1/openapi.json", get(small::openapi))
        .route("/metrics", get(metrics::answer))
        .route("/healthz", get(small::health))
        .fallback(async || Refusal::nothing_there())
        .method_not_allowed_fallback(async || Refusal::wrong_method())
        .layer(guard)
        .with_state(desk)
}
