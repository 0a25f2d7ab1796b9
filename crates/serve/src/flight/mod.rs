//! The hub's Arrow Flight SQL door: what ADBC, JDBC and ODBC drivers speak.
//!
//! # Invariants
//! - Who is let in says `listen`.
//! - Everything that comes is bounded, in bytes, in number and in time. What is refused is counted and
//!   says why; nothing that comes can end the hub.
//! - An answer goes out batch by batch as it is found. Whoever goes away, or takes longer than the
//!   deadline, ends its query.
//! - A statement that a point read can answer is answered by one.
//!
//! Read in this order: this file, `service` for what is asked, `flow` for how an
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

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use futures_util::StreamExt as _;
use skopos_query::Engine;
use tokio::runtime::Handle as Runtime;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo};

use self::counted::Counted;
use self::outer::Outer;
use self::service::Desk;
use crate::listen::{Connection, Incoming, Kind, Newcomer, TcpDoor};
use skopos_hub::config::FlightAt;
use skopos_hub::counts::Counts;
use skopos_term::Failure;

/// Connections at one time: a driver's pool has some for each program.
const MAX_CONNECTIONS: u64 = 256;

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

/// Listens there, or where it is usual.
///
/// # Errors
/// The address that was asked for cannot be had.
pub(crate) fn open(
    asked: Option<FlightAt>,
    engine: Arc<Engine>,
    counts: Arc<Counts>,
    runtime: &Runtime,
) -> Result<TcpDoor, Failure> {
    let kind = Kind { scheme: "grpc", option: "--flight", most: MAX_CONNECTIONS };
    let served = counts.clone();
    TcpDoor::open(&kind, asked, counts, runtime, |incoming| serve(incoming, engine, served))
}

async fn serve(incoming: Incoming, engine: Arc<Engine>, counts: Arc<Counts>) {
    let service = FlightServiceServer::new(Outer::new(Desk::new(engine, counts.clone())))
        .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let router = Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .http2_keepalive_interval(Some(ASKED_AFTER))
        .http2_keepalive_timeout(Some(GONE_AFTER))
        .add_service(Counted::new(service, counts));
    let closed = incoming.closing().closed();
    let connections = incoming.newcomers().filter_map(async |newcomer| match newcomer {
        Newcomer::LetIn(connection) => Some(io::Result::Ok(connection)),
        // By gRPC there is no answer before a question: it is closed.
        Newcomer::TurnedAway(..) => None,
    });
    // An error of one connection is told to that one, and there is no other.
    let _ = router.serve_with_incoming_shutdown(connections, closed).await;
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream().connect_info()
    }
}
