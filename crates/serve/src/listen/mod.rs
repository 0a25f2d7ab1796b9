//! TCP listeners: address, admission, number of connections, and shutdown. HTTP and Arrow Flight SQL share this module.
//!
//! # Invariants
//! - Each connection has a caller: by its certificate, by the user of its other end on this machine, or a stranger, who
//!   can show a token with each request.
//! - Without a configured address a listener uses the loopback interface, in clear text. A configured address has TLS if
//!   the hub has a certificate. Clear text at an address of the network needs `--insecure`.
//! - Rejected connections are counted.
//! - A client that does not read its answer is disconnected. When a listener is full, an idle client is.
//! - A listener that closes accepts no further connection, and running requests have a moment to finish.

mod args;
mod connection;
mod entry;
mod idle;
mod peer;
mod proof;
mod tls;

pub use args::ListenArgs;
pub(crate) use connection::Connection;
pub(crate) use entry::Admittance;
pub(crate) use idle::{Client, Connections, Open};
pub(crate) use peer::is_open;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

use skopos_access::Caller;
use skopos_hub::config::ListenAddress;
use skopos_hub::counts::{Counts, OpenConnection};
use skopos_term::Failure;

use self::entry::Entry;
use crate::shares::Shares;

/// Maximum number of connections that are checked at one time. A client can be slow with its part of TLS, so an address has
/// a smaller share of it.
const CHECKED_AT_ONCE: usize = 512;

/// Maximum number of connections of one address that enter at one time. A rack behind one address starts in seconds.
const MAX_ENTERING: usize = 64;

/// Pause after a failure to accept, most often because too many files are open.
const PAUSE: Duration = Duration::from_millis(100);

/// Number of files that a hub asks for, and how many of them there are for each connection of a listener: the rest is for
/// other listeners, for history and for segments.
const WANTED_FILES: u64 = 8192;
const FILES_A_CONNECTION: u64 = 4;

/// Maximum time in which a connection that is closed leaves its place, and the number of looks in it.
const CLOSING_TIME: Duration = Duration::from_millis(200);
const CLOSING_LOOKS: u32 = 20;

/// Maximum time for which running requests delay the shutdown of a listener.
const GRACE: Duration = Duration::from_secs(1);

/// Properties of a protocol's listener.
pub(crate) struct Protocol {
    /// Scheme of its URL, in clear text and with TLS.
    pub schemes: [&'static str; 2],
    /// Its name in ALPN.
    pub alpn: &'static [u8],
    /// Option for its address.
    pub option: &'static str,
    /// Maximum number of open connections. A hub with few files has fewer.
    pub max_connections: u64,
    /// Number of bytes that a client of the protocol sends at once.
    pub first_bytes: u64,
}

/// A TCP listener, until it is dropped.
pub(crate) enum TcpEndpoint {
    /// It listens.
    Open(OpenListener),
    /// The user disabled it.
    Disabled,
    /// It does not listen, because another program uses the default port.
    PortTaken(Failure),
}

/// A listener that accepts connections.
pub(crate) struct OpenListener {
    url: String,
    closing: watch::Sender<bool>,
    /// Carries no message. It disconnects when the last connection is dropped.
    connections: Receiver<Infallible>,
}

impl TcpEndpoint {
    /// Listens at `address`, or at the default address, and runs `serve` with the incoming connections. `admittance` has the
    /// certificate and the tokens.
    ///
    /// # Errors
    /// Fails if `address` cannot be used, or needs a certificate that the hub does not have.
    pub(crate) fn open<const PORT: u16, F>(
        protocol: &Protocol,
        address: Option<ListenAddress<PORT>>,
        admittance: &Admittance,
        counts: Arc<Counts>,
        runtime: &Handle,
        serve: impl FnOnce(Incoming) -> F,
    ) -> Result<Self, Failure>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (at, is_configured) = match address {
            Some(ListenAddress::Disabled) => return Ok(Self::Disabled),
            Some(ListenAddress::At(at)) => (at, true),
            None => (ListenAddress::<PORT>::DEFAULT, false),
        };
        let Protocol { schemes: [clear, secure], alpn, option, max_connections, first_bytes } =
            *protocol;
        let max_connections = max_connections.min(most_files() / FILES_A_CONNECTION);
        let entry = admittance.entry(at, is_configured, alpn)?;
        let scheme = if entry.is_secure() { secure } else { clear };
        let (listener, at) = match bind(at, runtime) {
            Ok(bound) => bound,
            Err(e) => {
                let failure = Failure::new(format!("cannot listen at {scheme}://{at}")).because(&e);
                let failure = failure.hint(format!(
                    "choose another address with `{option}`, or `{option} none` to disable it"
                ));
                return if is_configured { Err(failure) } else { Ok(Self::PortTaken(failure)) };
            }
        };
        let (closing, is_closing) = watch::channel(false);
        let (open, connections) = channel();
        let admission = Admission {
            entry,
            max_connections,
            first_bytes,
            counts,
            open,
            connections: Connections::default(),
            entering: Shares::new(MAX_ENTERING, usize::MAX),
        };
        let admission = Arc::new(admission);
        let incoming = Incoming { listener, admission, closing: Closing(is_closing) };
        runtime.spawn(serve(incoming));
        Ok(Self::Open(OpenListener { url: format!("{scheme}://{at}"), closing, connections }))
    }

    /// Returns the URL of an open listener.
    pub(crate) fn url(&self) -> Option<&str> {
        if let Self::Open(open) = self { Some(&open.url) } else { None }
    }

    /// Returns the reason why the default port could not be used.
    pub(crate) fn warning(&self) -> Option<&Failure> {
        if let Self::PortTaken(failure) = self { Some(failure) } else { None }
    }
}

impl Drop for OpenListener {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        // After the timeout, the remaining connections end with the runtime.
        let _ = self.connections.recv_timeout(GRACE);
    }
}

/// Returns the number of files that the process may open, after a try to have more: many systems allow 1,024 unless a
/// process asks.
fn most_files() -> u64 {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.unwrap_or(u64::MAX).min(WANTED_FILES);
    if now.current.is_none_or(|current| current >= most) {
        return now.current.unwrap_or(u64::MAX);
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: now.maximum }) {
        Ok(()) => most,
        Err(_) => now.current.unwrap_or(u64::MAX),
    }
}

fn bind(at: SocketAddr, runtime: &Handle) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = StdListener::bind(at)?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    let _entered = runtime.enter();
    Ok((TcpListener::from_std(listener)?, at))
}

/// Notifies that a listener closes.
#[derive(Clone)]
pub(crate) struct Closing(watch::Receiver<bool>);

impl Closing {
    /// Waits until the listener closes.
    pub(crate) async fn closed(mut self) {
        // If the sender is gone, the listener is closed, too.
        let _ = self.0.wait_for(|is_closing| *is_closing).await;
    }
}

/// The connections that a listener accepts.
pub(crate) struct Incoming {
    listener: TcpListener,
    admission: Arc<Admission>,
    closing: Closing,
}

/// An accepted connection, counted as admitted or rejected.
pub(crate) enum Accepted {
    /// The client may send requests.
    Admitted(Connection),
    /// The connection is rejected. It is there if it can be answered in clear text.
    Rejected(Option<TcpStream>, Rejection),
}

/// The reason why a connection is rejected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rejection {
    /// Too many connections are open.
    TooManyConnections,
    /// The client runs as another user.
    AnotherUser,
}

impl Incoming {
    /// Returns the notification that the listener closes.
    pub(crate) fn closing(&self) -> Closing {
        self.closing.clone()
    }

    /// Returns all connections until the listener closes.
    pub(crate) fn connections(self) -> BoxStream<'static, Accepted> {
        let Self { listener, admission, closing } = self;
        let accepted = stream::unfold(listener, |listener| async move {
            loop {
                match listener.accept().await {
                    Ok(accepted) => return Some((accepted, listener)),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
        });
        let checked = accepted.take_until(closing.closed()).map(move |(stream, peer)| {
            let admission = admission.clone();
            async move { admission.check(stream, peer).await }
        });
        checked.buffer_unordered(CHECKED_AT_ONCE).boxed()
    }
}

/// Decides which connections are admitted.
struct Admission {
    entry: Entry,
    max_connections: u64,
    first_bytes: u64,
    counts: Arc<Counts>,
    /// Given to each connection, so that the listener can wait for them.
    open: Sender<Infallible>,
    connections: Connections,
    /// Connections that enter, by address.
    entering: Shares<IpAddr>,
}

impl Admission {
    async fn check(&self, stream: TcpStream, peer: SocketAddr) -> Accepted {
        // In clear text nothing waits for the client.
        let entering = self.entry.is_secure().then(|| self.entering.take(&peer.ip()));
        if let Some(None) = entering {
            return self.reject(None, Rejection::TooManyConnections);
        }
        let (stream, caller, proof) = match self.entry.enter(stream, peer).await {
            Ok(entered) => entered,
            Err(stream) => return self.reject(stream, Rejection::AnotherUser),
        };
        drop(entering);
        if caller == Caller::Stranger {
            // Strangers cannot take all places: at half of them, the oldest goes for each that comes.
            let most = usize::try_from(self.max_connections / 2).unwrap_or(usize::MAX);
            self.connections.close_stranger_above(most.max(1));
        }
        let Some(counted) = self.place().await else {
            return self.reject(stream.into_clear(), Rejection::TooManyConnections);
        };
        Accepted::Admitted(Connection::new(
            stream,
            (caller, proof, self.first_bytes),
            counted,
            (self.open.clone(), &self.connections),
        ))
    }

    /// Returns a place for a connection, for which an idle one may have to go.
    async fn place(&self) -> Option<OpenConnection> {
        let place = || self.counts.connect(self.max_connections);
        let mut found = place();
        if found.is_none() && self.connections.close_idle() {
            for _ in 0..CLOSING_LOOKS {
                tokio::time::sleep(CLOSING_TIME / CLOSING_LOOKS).await;
                found = place();
                if found.is_some() {
                    break;
                }
            }
        }
        found
    }

    fn reject(&self, stream: Option<TcpStream>, why: Rejection) -> Accepted {
        self.counts.reject_connection();
        Accepted::Rejected(stream, why)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Answers each connection with `bye`, some time after the listener begins to close.
    async fn serve(incoming: Incoming) {
        let closing = incoming.closing();
        let mut connections = incoming.connections();
        while let Some(accepted) = connections.next().await {
            let Accepted::Admitted(mut connection) = accepted else { continue };
            let closed = closing.clone().closed();
            tokio::spawn(async move {
                closed.await;
                tokio::time::sleep(Duration::from_millis(50)).await;
                connection.write_all(b"bye").await
            });
        }
    }

    #[test]
    fn a_connection_too_many_is_rejected_and_an_open_one_is_answered_before_the_listener_closes() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let protocol = Protocol {
            schemes: ["test", "tests"],
            alpn: b"test",
            option: "--test",
            max_connections: 1,
            first_bytes: 1,
        };
        let at = Some(ListenAddress::<1>::At("127.0.0.1:0".parse().expect("an address")));
        let counts = Arc::<Counts>::default();
        let endpoint = TcpEndpoint::open(
            &protocol,
            at,
            &Admittance::default(),
            counts.clone(),
            runtime.handle(),
            serve,
        );
        let endpoint = endpoint.expect("a port");
        let at =
            endpoint.url().and_then(|url| url.strip_prefix("test://")).expect("open").to_owned();
        let connect = || std::net::TcpStream::connect(&at);
        let count = |metric: usize| counts.all()[metric].1;
        let (mut admitted, mut text) = (connect().expect("it listens"), String::new());
        while count(4) == 0 {
            std::thread::yield_now();
        }
        let mut other = connect().expect("it listens");
        // Only ends a hang.
        other.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        assert_eq!(other.read_to_string(&mut text).expect("an end"), 0);
        assert_eq!((count(0), count(1), count(4)), (1, 1, 1), "requests, refused, open");
        drop(endpoint);
        drop(runtime);
        admitted.read_to_string(&mut text).expect("an end");
        assert_eq!(text, "bye");
        assert!(connect().is_err(), "the listener is closed");
    }
}
