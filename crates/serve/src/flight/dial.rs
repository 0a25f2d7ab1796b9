//! Connects to the Flight listener of another hub: with TLS and the certificates of both, or in clear text.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use skopos_wire::Identity;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::codegen::{Service, http};

/// A connection in clear text or with TLS.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Connects to one address.
#[derive(Clone)]
pub(super) struct Dial {
    address: Arc<str>,
    /// `None` for clear text.
    identity: Option<Arc<Identity>>,
}

impl Dial {
    /// Returns what connects to `HOST:PORT`, with the certificate of an identity if there is one.
    pub(super) fn new(address: &str, identity: Option<Arc<Identity>>) -> Self {
        Self { address: address.into(), identity }
    }

    async fn connect(self) -> io::Result<TokioIo<Pin<Box<dyn Wire>>>> {
        let stream = TcpStream::connect(&*self.address).await?;
        stream.set_nodelay(true)?;
        let Some(identity) = &self.identity else {
            let stream: Pin<Box<dyn Wire>> = Box::pin(stream);
            return Ok(TokioIo::new(stream));
        };
        let config = config(identity).map_err(io::Error::other)?;
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|all| all.first());
        let names = shown.and_then(|shown| identity.names_in(shown));
        match names {
            // Copies go to hubs alone: a node could have the address of one.
            Some(names) if !names.is_hub => {
                Err(io::Error::other(format!("the {names} answers at this address, not a hub")))
            }
            Some(names) if names.node == identity.names().node => {
                Err(io::Error::other("this hub itself answers at this address"))
            }
            Some(_) => {
                let stream: Pin<Box<dyn Wire>> = Box::pin(stream);
                Ok(TokioIo::new(stream))
            }
            None => Err(io::Error::other("the certificate is not one of this site")),
        }
    }
}

/// Returns the TLS of a client with the certificate that the identity has now.
fn config(identity: &Identity) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.authority().clone()).map_err(|e| e.to_string())?;
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_protocol_versions(&[&TLS13]).map_err(|e| e.to_string())?;
    let (certificate, pkcs8) = identity.pair();
    let key = PrivatePkcs8KeyDer::from(pkcs8).into();
    let chain = vec![CertificateDer::from(certificate)];
    let config = config.with_root_certificates(roots).with_client_auth_cert(chain, key);
    let mut config = config.map_err(|e| e.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

impl Service<http::Uri> for Dial {
    type Response = TokioIo<Pin<Box<dyn Wire>>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        self.clone().connect().boxed()
    }
}
