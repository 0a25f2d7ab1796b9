//! The hub's HTTP listener: SQL, latest values, their changes, ranks, sizes for schedulers, and metrics
//! for Prometheus. `docs/openapi.json` describes
//! it, and a test compares the two.
//!
//! # Invariants
//! - `listen` finds out who a connection comes from; a token can say more. The guard asks the policy.
//! - Web pages cannot send requests: see `guard`.
//! - Requests are bounded in bytes, in number and in time. Each refusal is counted and gives its reason in JSON, except
//!   for input that is not HTTP.
//! - When a client closes its connection, its statement is cancelled.
//!
//! Read in this order: this file, `context`, `connection`, `guard`, `refusal`, then one file for each answer.

mod accept;
mod context;
mod refusal;
mod sending;
mod connection;
mod guard;
mod small;
mod sql;
mod parameters;
mod get;
mod estimate;
mod ranks;
mod join;
mod watch;
mod metrics;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use self::context::HttpContext;
use self::refusal::Refusal;
use crate::listen::{Admittance, Protocol, TcpEndpoint};
use crate::shares::Shares;
use skopos_hub::config::HttpAddress;
use skopos_hub::counts::Counts;
use skopos_hub::{Backend, Turns};
use skopos_term::Failure;

/// Maximum number of connections. It is higher than the number of statements and watchers, because browsers and pools
/// keep idle connections.
const MAX_CONNECTIONS: u64 = 2048;

/// Maximum number of requests that have values measured at one time.
const MAX_MEASUREMENTS: usize = 16;

/// Maximum number of clients of one caller that watch at one time: dashboards and programs of a site.
const MAX_WATCHERS_OF_A_CALLER: usize = 1024;

/// Maximum number of clients that watch, so that others find a place beside a caller who has all of theirs.
const MAX_WATCHERS: usize = 1536;

/// Maximum number of topics that all clients watch: each takes some hundred bytes of memory.
const MAX_WATCHED: usize = 1 << 20;

/// Maximum number of those of one caller: others always find room for a quarter.
const MAX_WATCHED_OF_A_CALLER: usize = MAX_WATCHED / 4 * 3;

/// Maximum number of searches for changed topics at one time. Other requests need the other cores.
const MAX_CHECKS: usize = 2;

/// Number of those of one caller, so that the searches of others never wait behind its own.
const MAX_CHECKS_OF_A_CALLER: usize = 1;

/// Opens the listener at `address`, or at the default address. URLs name the hub by its addresses or `hosts`; `admittance` has
/// its certificate and tokens.
///
/// # Errors
/// Fails if `address` cannot be used, or needs a certificate.
pub(crate) fn open(
    address: Option<HttpAddress>,
    (hosts, admittance): (Vec<String>, Admittance),
    backend: Arc<Backend>,
    counts: Arc<Counts>,
    runtime: &Handle,
) -> Result<TcpEndpoint, Failure> {
    let protocol = Protocol {
        schemes: ["http", "https"],
        alpn: b"http/1.1",
        option: "--http",
        max_connections: MAX_CONNECTIONS,
        first_bytes: 1,
    };
    TcpEndpoint::open(
        &protocol,
        address,
        &admittance.clone(),
        counts.clone(),
        runtime,
        |incoming| {
            let measurements = Arc::new(Semaphore::new(MAX_MEASUREMENTS));
            let checks = Turns::new(MAX_CHECKS, MAX_CHECKS_OF_A_CALLER);
            let context = Arc::new(HttpContext {
                backend,
                counts,
                admittance,
                measurements,
                watchers: Shares::new(MAX_WATCHERS_OF_A_CALLER, MAX_WATCHERS),
                checks,
                watched: Shares::new(MAX_WATCHED_OF_A_CALLER, MAX_WATCHED),
                hosts,
            });
            connection::serve(incoming, context.clone(), routes(context))
        },
    )
}

fn routes(context: Arc<HttpContext>) -> Router {
    let guard = axum::middleware::from_fn_with_state(context.clone(), guard::check);
    let sql_limit = DefaultBodyLimit::max(sql::MAX_BODY_BYTES);
    Router::new()
        .route("/api/v1/sql", post(sql::answer).layer(sql_limit))
        .route("/api/v1/get", get(get::answer))
        .route("/api/v1/ranks/{profile}", get(ranks::answer))
        .route("/api/v1/estimate", get(estimate::answer))
        .route("/api/v1/watch", get(watch::answer))
        .route("/api/v1/nodes", get(small::nodes))
        .route("/api/v1/openapi.json", get(small::openapi))
        .route("/api/v1/authority", get(join::authority))
        .route(
            "/api/v1/join",
            post(join::answer).layer(DefaultBodyLimit::max(join::MAX_BODY_BYTES)),
        )
        .route("/metrics", get(metrics::answer))
        .route("/healthz", get(small::health))
        .fallback(async || Refusal::unknown_path())
        .method_not_allowed_fallback(async || Refusal::wrong_method())
        .layer(guard)
        .with_state(context)
}
