//! TLS of the TCP listeners: version 1.3, with the certificate of the hub. A client may show the certificate of a node.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use skopos_wire::Identity;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Returns the acceptor for a protocol with this name in ALPN.
///
/// # Errors
/// The certificate cannot be used; the reason, for people.
pub(super) fn acceptor(identity: &Identity, protocol: &[u8]) -> Result<TlsAcceptor, String> {
    let (certificate, pkcs8) = identity.pair();
    let mut roots = RootCertStore::empty();
    roots.add(identity.authority().clone()).map_err(|e| e.to_string())?;
    let provider = Arc::new(default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let clients = clients.allow_unauthenticated().build().map_err(|e| e.to_string())?;
    let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let config = config.map_err(|e| e.to_string())?.with_client_cert_verifier(clients);
    let chain = vec![CertificateDer::from(certificate)];
    let mut config = config
        .with_single_cert(chain, PrivatePkcs8KeyDer::from(pkcs8).into())
        .map_err(|e| e.to_string())?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
