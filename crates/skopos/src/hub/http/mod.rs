//! The hub's HTTP door: SQL, latest values and their changes, and what Prometheus scrapes.
//! `docs/openapi.json` is its description, which a test holds it to.
//!
//! # Invariants
//! - Unless an address is given it listens on this machine alone, and answers whose hub it is, and
//!   root: like the UNIX socket.
//! - No web page can ask: see `guard`.
//! - Everything that comes is bounded, in bytes, in number and in time; everything that is refused is
//!   counted, and says why in JSON.
//! - Whoever goes away is not answered, and what was computed for them ends.
//!
//! Read in this order: this file for who is let in, `guard`, `refusal`, then a file an answer.

mod connection;
pub(super) mod peer;
mod guard;
mod refusal;
mod small;
mod sql;
mod topics;
mod get;
mod watch;
mod metrics;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use clap::Args;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use self::connection::accept;
use self::refusal::Refusal;
use super::Inside;
use super::counts::Counts;
use crate::config::HttpAt;
use crate::failure::Failure;

/// Questions that are computed at one time; point reads are none. More would only take turns.
const MAX_QUERIES: usize = 32;

/// Whoever is told changes at one time: dashboards and programs of a site.
const MAX_WATCHERS: usize = 128;

/// Options of the HTTP door.
#[derive(Clone, Debug, Args)]
pub(crate) struct HttpArgs {
    /// Be asked by HTTP there, by everybody who reaches that address; `none` for not at all
    /// [default: 127.0.0.1:7470, by you alone]
    #[arg(long, value_name = "ADDRESS")]
    http: Option<HttpAt>,
}

impl HttpArgs {
    /// For a hub that is not asked so.
    #[cfg(feature = "bench")]
    pub(crate) fn nowhere() -> Self {
        Self { http: Some(HttpAt::Nowhere) }
    }

    /// What was typed, or else configured.
    pub(super) fn or(&self, configured: Option<HttpAt>) -> Option<HttpAt> {
        self.http.or(configured)
    }
}

/// What requests are answered from.
struct Desk {
    inside: Arc<Inside>,
    counts: Arc<Counts>,
    queries: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
    /// Where it listens.
    at: SocketAddr,
    /// Whether an address was given: then whoever reaches it is answered.
    is_open: bool,
}

/// Listens until the runtime ends.
pub(crate) struct HttpDoor {
    at: SocketAddr,
}

impl HttpDoor {
    /// Listens there, or where it is usual. The inner error is that it does not, and why if that is no
    /// wish.
    ///
    /// # Errors
    /// The address that was asked for cannot be had.
    pub(super) fn open(
        asked: Option<HttpAt>,
        inside: Arc<Inside>,
        counts: Arc<Counts>,
        runtime: &Handle,
    ) -> Result<Result<Self, Option<Failure>>, Failure> {
        let (at, is_open) = match asked {
            Some(HttpAt::Nowhere) => return Ok(Err(None)),
            Some(HttpAt::At(at)) => (at, true),
            None => (HttpAt::USUAL, false),
        };
        let listening = TcpListener::bind(at).and_then(|listener| {
            listener.set_nonblocking(true)?;
            let at = listener.local_addr()?;
            let _inside = runtime.enter();
            Ok((tokio::net::TcpListener::from_std(listener)?, at))
        });
        let (listener, at) = match listening {
            Ok(listening) => listening,
            Err(e) => {
                let failure = Failure::new(format!("cannot listen at http://{at}")).because(&e);
                let failure = failure.hint("name another with `--http`, or `--http none`");
                return if is_open { Err(failure) } else { Ok(Err(Some(failure))) };
            }
        };
        let queries = Arc::new(Semaphore::new(MAX_QUERIES));
        let watchers = Arc::new(Semaphore::new(MAX_WATCHERS));
        let desk = Arc::new(Desk { inside, counts, queries, watchers, at, is_open });
        runtime.spawn(accept(listener, desk.clone(), routes(desk)));
        Ok(Ok(Self { at }))
    }

    /// Where it is asked.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.at)
    }
}

fn routes(desk: Arc<Desk>) -> Router {
    let guard = axum::middleware::from_fn_with_state(desk.clone(), guard::check);
    Router::new()
        .route("/api/v1/sql", post(sql::answer))
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
