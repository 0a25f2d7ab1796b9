//! The agent-check listener for HAProxy: a server's weight in percent, from the published ranks.
//!
//! HAProxy connects, sends the text of `agent-send`, and reads one line:
//!
//! ```text
//! → cassandra/n02\n               PROFILE/CANDIDATE, or NODE/PROFILE/CANDIDATE if several nodes rank the profile
//! ← up 62%\n                      the best candidate has 100 %, one that the profile excludes 0 %
//! ← up 100% #…\n                  no recent rank: HAProxy uses its own weights
//! ```
//!
//! # Invariants
//! - The listener is off unless it is configured. Whoever reaches it may ask: HAProxy has no way to show who it is. So it
//!   needs `--insecure` at an address that is not the loopback.
//! - A line and its time are bounded. A client that asks for something else is refused and counted, and gets no answer.
//! - The administrative state of a server is the operator's: no answer has `ready`, `drain` or `maint`.

mod weight;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use skopos_access::{Action, may};
use skopos_hub::Backend;
use skopos_hub::config::{HaproxyConfig, ListenAddress};
use skopos_hub::counts::Counts;
use skopos_term::Failure;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Handle;
use tokio::time::timeout;

use self::weight::{Asked, answer};
use crate::listen::{Accepted, Admittance, Connection, Incoming, Protocol, TcpEndpoint};

/// Maximum number of connections. Each server of HAProxy has one for a moment, every two seconds.
const MAX_CONNECTIONS: u64 = 512;

/// Longest line: a node, a profile and a candidate.
const MAX_LINE_BYTES: usize = 512;

/// Maximum time for a line to arrive. HAProxy sends it at once.
const LINE_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens the listener. With `is_insecure` it may have an address of the network.
///
/// # Errors
/// The address cannot be used, or is not the loopback.
pub(crate) fn open(
    config: &HaproxyConfig,
    is_insecure: bool,
    backend: Arc<Backend>,
    counts: Arc<Counts>,
    runtime: &Handle,
) -> Result<TcpEndpoint, Failure> {
    let protocol = Protocol {
        schemes: ["haproxy-agent", "haproxy-agent"],
        alpn: b"",
        option: "listen of [hub.haproxy]",
        max_connections: MAX_CONNECTIONS,
        first_bytes: 1,
    };
    let is_loopback = match config.listen {
        ListenAddress::At(at) => at.ip().to_canonical().is_loopback(),
        ListenAddress::Disabled => true,
    };
    let admittance = Admittance { pki: None, is_insecure: is_insecure || is_loopback };
    TcpEndpoint::open(
        &protocol,
        Some(config.listen),
        &admittance,
        counts.clone(),
        runtime,
        |incoming| serve(incoming, backend, counts),
    )
}

async fn serve(incoming: Incoming, backend: Arc<Backend>, counts: Arc<Counts>) {
    let mut connections = incoming.connections();
    while let Some(accepted) = connections.next().await {
        if let Accepted::Admitted(connection) = accepted {
            let (backend, counts) = (backend.clone(), counts.clone());
            tokio::spawn(async move {
                counts.request();
                // HAProxy keeps the weight that it has while there is no answer.
                if serve_one(connection, &backend).await.is_none() {
                    counts.refuse();
                }
            });
        }
    }
}

/// Answers one connection; `None` if there is no answer.
async fn serve_one(mut connection: Connection, backend: &Backend) -> Option<()> {
    let line = timeout(LINE_TIMEOUT, line(&mut connection)).await.ok()??;
    let asked = Asked::parse(&line)?;
    let caller = connection.caller().clone();
    may(&caller, Action::ReadFacts).ok()?;
    let source = backend.source.clone();
    let answer = backend.engine.reading(&caller, move || answer(&*source, &asked)).await.ok()?;
    connection.write_all(answer.as_bytes()).await.ok()?;
    connection.shutdown().await.ok()
}

/// Reads a line without its end; `None` if it is too long or is not text.
async fn line(connection: &mut Connection) -> Option<String> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; MAX_LINE_BYTES]);
    while !bytes.contains(&b'\n') {
        let read = connection.read(&mut buffer).await.ok()?;
        if read == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..read]);
        if bytes.len() > MAX_LINE_BYTES {
            return None;
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    text.lines().next().map(|line| line.trim().to_owned())
}
