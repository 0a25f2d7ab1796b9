//! Entries of listeners: how a connection comes in, and from whom.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{Extensions, HeaderMap};
use skopos_access::Caller;
use skopos_hub::Pki;
use skopos_term::Failure;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::connection::Stream;
use super::proof::Proof;
use super::{peer, tls};

/// Maximum time for the client's part of TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of tokens that are looked up at one time: each takes a thread of those that queries and watches use, too.
const MAX_LOOK_UPS: usize = 8;

static LOOK_UPS: Semaphore = Semaphore::const_new(MAX_LOOK_UPS);

/// The certificate and the tokens of a hub.
#[derive(Clone, Default)]
pub(crate) struct Admittance {
    /// `None` if the hub has no certificate.
    pub(crate) pki: Option<Arc<Pki>>,
    /// True if clients of configured addresses need no certificate and no token: `--insecure`.
    pub(crate) is_insecure: bool,
}

/// Entry of one listener.
pub(super) struct Entry {
    admittance: Admittance,
    /// `None` for clear text.
    tls: Option<TlsAcceptor>,
    /// True if strangers are answered.
    is_open: bool,
}

impl Admittance {
    /// Returns how connections enter at `at`, which the user configured or not.
    ///
    /// # Errors
    /// Fails if the address is one of the network and the hub has no certificate, or one that cannot be used.
    pub(super) fn entry(
        &self,
        at: SocketAddr,
        is_configured: bool,
        protocol: &[u8],
    ) -> Result<Entry, Failure> {
        let clear = |is_open| Ok(Entry { admittance: self.clone(), tls: None, is_open });
        match &self.pki {
            _ if !is_configured => clear(false),
            _ if self.is_insecure => clear(true),
            Some(pki) => {
                let acceptor = tls::acceptor(pki.identity(), protocol);
                let failed = |why: String| {
                    Failure::new(format!("the certificate of this hub cannot be used: {why}"))
                };
                Ok(Entry {
                    admittance: self.clone(),
                    tls: Some(acceptor.map_err(failed)?),
                    is_open: false,
                })
            }
            None if at.ip().to_canonical().is_loopback() => clear(false),
            None => Err(Failure::new(format!("{at} would answer everybody, in clear text")).hint(
                "make certificates with `skopos pki init`; on a network of friends add --insecure",
            )),
        }
    }

    /// Returns who makes a request: the owner of the token that it shows, else the peer of its connection. `None` if the
    /// token is not valid.
    pub(crate) async fn caller(
        &self,
        headers: &HeaderMap,
        connection: &Extensions,
    ) -> Option<Caller> {
        match headers.get(AUTHORIZATION) {
            None => Some(connection.get::<Caller>().cloned().unwrap_or(Caller::Stranger)),
            Some(shown) => self.caller_of(shown.to_str().ok()?).await,
        }
    }

    /// Returns the caller who shows this header `Authorization`; `None` if the token in it is not valid.
    pub(crate) async fn caller_of(&self, authorization: &str) -> Option<Caller> {
        let (scheme, token) = authorization.split_once(' ')?;
        let is_bearer = scheme.eq_ignore_ascii_case("bearer");
        let (pki, token) = (self.pki.as_ref().filter(|_| is_bearer)?, token.trim());
        if let Some(caller) = pki.recent_caller(token) {
            return Some(caller);
        }
        // Tokens are files: a slow disk must not keep the threads of the listeners waiting.
        let (pki, token) = (pki.clone(), token.to_owned());
        look_up(&LOOK_UPS, move || pki.caller_of(&token)).await.flatten()
    }
}

/// Runs `work` on a thread that may wait, with one of the `permits`.
async fn look_up<T: Send + 'static>(
    permits: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let permit = permits.acquire().await.ok()?;
    let work = move || {
        // It goes with the work, which ends later than a request that is given up.
        let _permit = permit;
        work()
    };
    tokio::task::spawn_blocking(work).await.ok()
}

impl Entry {
    pub(super) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the stream with its caller, or the stream of a client that cannot enter.
    pub(super) async fn enter(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Result<(Stream, Caller, Option<Proof>), Option<TcpStream>> {
        let is_own = is_own(&stream, peer).await;
        let Some(tls) = &self.tls else {
            return match (is_own, self.is_open, &self.admittance.pki) {
                (true, ..) => Ok((Stream::Clear(stream), Caller::Owner, None)),
                (_, true, _) => Ok((Stream::Clear(stream), Caller::Anybody, None)),
                // It may have a token.
                (.., Some(_)) => Ok((Stream::Clear(stream), Caller::Stranger, None)),
                (.., None) => Err(Some(stream)),
            };
        };
        let stream = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await;
        let Ok(Ok(stream)) = stream else { return Err(None) };
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let proof = certificates.first().and_then(|certificate| {
            let identity = self.admittance.pki.as_ref()?.identity().clone();
            Some(Proof { identity, certificate: certificate.clone().into_owned() })
        });
        let names = proof.as_ref().and_then(Proof::names);
        let (caller, proof) = match (names, is_own) {
            (Some(names), _) => (Caller::Node(names), proof),
            (None, true) => (Caller::Owner, None),
            (None, false) => (Caller::Stranger, None),
        };
        Ok((Stream::Tls(Box::new(stream)), caller, proof))
    }
}

/// Returns true if the peer of `stream` is a process of this user or root, on this machine.
async fn is_own(stream: &TcpStream, peer: SocketAddr) -> bool {
    let Ok(here) = stream.local_addr() else { return false };
    // Only a connection within this machine has both ends in its tables.
    if !peer.ip().to_canonical().is_loopback() && peer.ip() != here.ip() {
        return false;
    }
    tokio::task::spawn_blocking(move || peer::is_own(peer, here)).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    static PERMITS: Semaphore = Semaphore::const_new(MAX_LOOK_UPS);
    static IS_OPEN: AtomicBool = AtomicBool::new(false);
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);

    /// A look-up on a disk that does not answer before the test lets it.
    fn slow() {
        STARTED.fetch_add(1, Ordering::SeqCst);
        MOST.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        while !IS_OPEN.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }

    /// Also by requests that are given up: their look-ups still hold their threads.
    #[test]
    fn tokens_are_looked_up_by_a_bounded_number_of_threads() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.enable_time().worker_threads(1).build().expect("threads");
        runtime.block_on(async {
            let start = |count| (0..count).map(|_| tokio::spawn(look_up(&PERMITS, slow)));
            let given_up: Vec<_> = start(2 * MAX_LOOK_UPS).collect();
            while STARTED.load(Ordering::SeqCst) < MAX_LOOK_UPS {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            given_up.iter().for_each(tokio::task::JoinHandle::abort);
            for task in given_up {
                assert!(task.await.is_err(), "it ended with its look-up");
            }
            let waiting: Vec<_> = start(2 * MAX_LOOK_UPS).collect();
            // Without the bound all of them start within this time.
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(STARTED.load(Ordering::SeqCst), MAX_LOOK_UPS);
            IS_OPEN.store(true, Ordering::SeqCst);
            for task in waiting {
                assert_eq!(task.await.expect("no panic"), Some(()));
            }
        });
        assert_eq!(MOST.load(Ordering::SeqCst), MAX_LOOK_UPS);
        assert_eq!(STARTED.load(Ordering::SeqCst), 3 * MAX_LOOK_UPS);
    }
}
