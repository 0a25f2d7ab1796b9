//! The hub's Arrow Flight SQL listener, for ADBC, JDBC and ODBC drivers.
//!
//! # Invariants
//! - `listen` finds out who a connection comes from; a token can say more. `guard` asks the policy.
//! - A prepared statement belongs to the caller who prepared it.
//! - Requests are bounded in bytes, in number and in time. Each refusal is counted and gives its reason. A request
//!   cannot end the hub.
//! - An answer is sent batch by batch while the query runs. The query is cancelled at its deadline, or when the client
//!   closes the connection.
//! - Point reads answer every statement that they can.
//!
//! Read in this order: this file, `service` for the requests, `flow` for the answers, `handle` and `prepared` for the
//! handles that clients hold; `put`, `ticket` and `download` for records of jobs; `work` for statements that several
//! hubs answer.

mod handle;
mod prepared;
mod status;
mod info;
mod catalog;
mod flow;
mod plain_data;
mod put;
mod ticket;
mod download;
#[cfg(test)]
mod download_tests;
mod keep;
mod pieces;
mod dial;
mod replicate;
mod work;
mod service;
mod get_schema;
mod guard;
mod recording;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use futures_util::StreamExt as _;
use skopos_access::Caller;
use skopos_query::Engine;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Handle as Runtime;
use tokio::time::timeout;
use tonic::transport::Server;
use tonic::transport::server::Connected;

use self::download::Downloads;
use self::get_schema::FullService;
use self::guard::Guard;
use self::recording::Recording;
pub(crate) use self::replicate::ReplicaTask;
use self::service::SqlService;
use self::work::ForHubs;
pub(crate) use self::work::OtherHubs;
use crate::listen::{
    Accepted, Admittance, Client, Connection, Incoming, Protocol, Rejection, TcpEndpoint,
};
use skopos_hub::config::FlightAddress;
use skopos_hub::counts::Counts;
use skopos_hub::jobs::JobsPlace;
use skopos_rpc::host::tonic::ServerLayer;
use skopos_term::Failure;

/// Maximum number of connections. A driver's pool has several for each program.
const MAX_CONNECTIONS: u64 = 256;

/// Bytes with which a client of HTTP/2 begins: the preface, and the head of its settings.
const PREFACE_BYTES: u64 = 24 + 9;

/// The longest message: room for the longest statement, or for values of a thousand parameters.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// The longest plan of another hub: it names a million parts of jobs at most, and each takes some 60 bytes.
const MAX_PLAN_BYTES: usize = 64 << 20;

/// Maximum number of parallel requests of one connection. A connection belongs to one program, and queries have a limit
/// of their own.
const MAX_STREAMS: u32 = 128;

/// The longest headers: room for the tokens of proxies.
const MAX_HEADER_BYTES: u32 = 16 * 1024;

/// Time after which a silent client gets a ping. Without it, clients on dead machines would keep their connections.
const PING_AFTER: Duration = Duration::from_secs(30);

/// Time after which a client that does not answer a ping is disconnected.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Opens the listener at `address`, or at the default address. `admittance` has the certificate and the tokens of the hub.
///
/// # Errors
/// Fails if `address` cannot be used, or needs a certificate.
pub(crate) fn open(
    address: Option<FlightAddress>,
    admittance: Admittance,
    (engine, jobs): (Arc<Engine>, Arc<JobsPlace>),
    counts: Arc<Counts>,
    (runtime, dir): (&Runtime, &Path),
) -> Result<TcpEndpoint, Failure> {
    let protocol = Protocol {
        schemes: ["grpc", "grpc+tls"],
        alpn: b"h2",
        option: "--flight",
        max_connections: MAX_CONNECTIONS,
        first_bytes: PREFACE_BYTES,
    };
    let (served, dir) = (counts.clone(), dir.to_path_buf());
    TcpEndpoint::open(&protocol, address, &admittance.clone(), counts, runtime, |incoming| {
        serve(incoming, admittance, (engine, jobs), (served, dir))
    })
}

async fn serve(
    incoming: Incoming,
    admittance: Admittance,
    (engine, jobs): (Arc<Engine>, Arc<JobsPlace>),
    (counts, dir): (Arc<Counts>, PathBuf),
) {
    let recording = Recording::start(&dir);
    let identity = admittance.pki.as_ref().map(|pki| pki.identity().clone());
    let downloads = Downloads::new((engine.clone(), jobs.clone()), counts.clone(), identity);
    // A hub that helps nobody has no such service, so that no certificate reads its jobs.
    let worker = jobs.helps().then(|| {
        let worker = engine.worker().into_worker_server().max_decoding_message_size(MAX_PLAN_BYTES);
        let for_hubs = ForHubs::new(worker, engine.clone());
        Guard::new(for_hubs, admittance.clone(), counts.clone())
    });
    let sql = SqlService::new(engine, jobs, counts.clone());
    let service = FlightServiceServer::new(FullService::new(sql, downloads))
        .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let router = Server::builder()
        .layer(ServerLayer::with(recording.recorder()))
        .max_concurrent_streams(MAX_STREAMS)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .http2_keepalive_interval(Some(PING_AFTER))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .add_service(Guard::new(service, admittance, counts))
        .add_optional_service(worker);
    let closed = incoming.closing().closed();
    let connections = incoming.connections().filter_map(async |accepted| match accepted {
        Accepted::Admitted(connection) => Some(io::Result::Ok(connection)),
        Accepted::Rejected(stream, why) => {
            if let Some(stream) = stream {
                tokio::spawn(turn_away(stream, why));
            }
            None
        }
    });
    // Errors are reported to their own connections.
    let _ = router.serve_with_incoming_shutdown(connections, closed).await;
}

#[cfg(test)]
pub(crate) use self::flow::metadata as ending;

/// The beginning of an HTTP/2 connection that ends at once: empty settings, then a frame that says so (RFC 9113, 6.8).
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const GO_AWAY: u8 = 7;

/// Error codes of HTTP/2: calm down, and insufficient rights.
const ENHANCE_YOUR_CALM: u8 = 0xb;
const INADEQUATE_SECURITY: u8 = 0xc;

/// Maximum time for the answer to a rejected connection.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Tells a client why it is not admitted. gRPC has no response without a request, so this is one of HTTP/2.
async fn turn_away(mut stream: TcpStream, why: Rejection) {
    let (code, text) = match why {
        Rejection::TooManyConnections => (ENHANCE_YOUR_CALM, "too many connections are open"),
        Rejection::AnotherUser => (INADEQUATE_SECURITY, "this hub belongs to another user"),
    };
    let mut answer = SETTINGS.to_vec();
    let length = u8::try_from(8 + text.len()).unwrap_or(8);
    answer.extend([0, 0, length, GO_AWAY, 0, 0, 0, 0, 0]);
    // The last stream that was answered: none.
    answer.extend([0, 0, 0, 0, 0, 0, 0, code]);
    answer.extend_from_slice(text.as_bytes());
    let _ = timeout(REJECTION_TIMEOUT, async {
        stream.write_all(&answer).await?;
        stream.shutdown().await?;
        // Closing with unread input would reset the connection and discard the answer.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    })
    .await;
}

impl Connected for Connection {
    type ConnectInfo = (Caller, Client);

    fn connect_info(&self) -> Self::ConnectInfo {
        (self.caller().clone(), self.client())
    }
}
