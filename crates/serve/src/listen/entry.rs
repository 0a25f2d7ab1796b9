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
        let permit = LOOK_UPS.acquire().await.ok()?;
        let look_up = move || {
            // It goes with the look-up, which ends later than a request that is given up.
            let _permit = permit;
            pki.caller_of(&token)
        };
        tokio::task::spawn_blocking(look_up).await.ok().flatten()
    }
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
