//! The hub's Arrow Flight SQL door: what ADBC, JDBC and ODBC drivers speak.
//!
//! # Invariants
//! - Unless an address is given it listens on this machine alone.
//! - Everything that comes is bounded, in bytes, in number and in time. What is refused is counted and
//!   says why; nothing that comes can end the hub.
//! - An answer goes out batch by batch as it is found. Whoever goes away, or takes longer than the
//!   deadline, ends its query.
//! - A statement that a point read can answer is answered by one.
//!
//! Read in this order: this file for who is let in, `service` for what is asked, `flow` for how an
//! answer leaves, `handle` and `prepared` for what clients hold.

mod handle;
mod prepared;
mod status;
mod info;
mod catalog;
mod flow;
mod service;
mod outer;
mod counted;
mod accept;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use clap::Args;
use skopos_query::Engine;
use tokio::runtime::Handle as Runtime;
use tonic::transport::Server;

use self::counted::Counted;
use self::outer::Outer;
use self::service::Desk;
use super::counts::Counts;
use crate::config::FlightAt;
use crate::failure::Failure;

/// The longest message that is taken: a statement of the greatest length, or values for a thousand
/// parameters.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Requests of one connection at one time. A connection is one program, and queries are limited apart.
const MAX_STREAMS: u32 = 128;

/// The longest headers: tokens of proxies fit.
const MAX_HEADER_BYTES: u32 = 16 * 1024;

/// A client that says nothing is asked whether it is there, and is gone if it does not say so: one whose
/// machine died would else keep its place.
const ASKED_AFTER: Duration = Duration::from_secs(30);
const GONE_AFTER: Duration = Duration::from_secs(20);

/// Options of the Flight SQL door.
#[derive(Clone, Debug, Args)]
pub(crate) struct FlightArgs {
    /// Be asked by Arrow Flight SQL there, by everybody who reaches that address; `none` for not at all
    /// [default: 127.0.0.1:7471, by you alone]
    #[arg(long, value_name = "ADDRESS")]
    flight: Option<FlightAt>,
}

impl FlightArgs {
    /// For a hub that is not asked so.
    #[cfg(feature = "bench")]
    pub(crate) fn nowhere() -> Self {
        Self { flight: Some(FlightAt::Nowhere) }
    }

    /// What was typed, or else configured.
    pub(super) fn or(&self, configured: Option<FlightAt>) -> Option<FlightAt> {
        self.flight.or(configured)
    }
}

/// Listens until the runtime ends.
pub(crate) struct FlightDoor {
    at: SocketAddr,
}

impl FlightDoor {
    /// Listens there, or where it is usual. The inner error is that it does not, and why if that is no
    /// wish.
    ///
    /// # Errors
    /// The address that was asked for cannot be had.
    pub(super) fn open(
        asked: Option<FlightAt>,
        engine: Arc<Engine>,
        counts: Arc<Counts>,
        runtime: &Runtime,
    ) -> Result<Result<Self, Option<Failure>>, Failure> {
        let (at, is_open) = match asked {
            Some(FlightAt::Nowhere) => return Ok(Err(None)),
            Some(FlightAt::At(at)) => (at, true),
            None => (FlightAt::USUAL, false),
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
                let failure = Failure::new(format!("cannot listen at grpc://{at}")).because(&e);
                let failure = failure.hint("name another with `--flight`, or `--flight none`");
                return if is_open { Err(failure) } else { Ok(Err(Some(failure))) };
            }
        };
        let service = FlightServiceServer::new(Outer::new(Desk::new(engine, counts.clone())))
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        let router = Server::builder()
            .max_concurrent_streams(MAX_STREAMS)
            .http2_max_header_list_size(MAX_HEADER_BYTES)
            .http2_keepalive_interval(Some(ASKED_AFTER))
            .http2_keepalive_timeout(Some(GONE_AFTER))
            .add_service(Counted::new(service, counts.clone()));
        let connections = accept::connections(listener, is_open, counts);
        // It ends with the runtime; an error of one connection is told to that one.
        runtime.spawn(router.serve_with_incoming(connections));
        Ok(Ok(Self { at }))
    }

    /// Where it is asked.
    pub(super) fn url(&self) -> String {
        format!("grpc://{}", self.at)
    }
}
