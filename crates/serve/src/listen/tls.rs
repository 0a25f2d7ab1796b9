//! TLS of the TCP listeners: version 1.3, with the certificate of the hub. A client may show the certificate of a node.

use std::sync::{Arc, RwLock};

use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use skopos_model::unpoisoned;
use skopos_wire::Identity;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::{default_provider, sign::any_supported_type};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Returns the acceptor for a protocol with this name in ALPN.
///
/// # Errors
/// The certificate cannot be used; the reason, for people.
pub(super) fn acceptor(identity: &Arc<Identity>, protocol: &[u8]) -> Result<TlsAcceptor, String> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.authority().clone()).map_err(|e| e.to_string())?;
    let provider = Arc::new(default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let clients = clients.allow_unauthenticated().build().map_err(|e| e.to_string())?;
    let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let config = config.map_err(|e| e.to_string())?.with_client_cert_verifier(clients);
    let mut config = config.with_cert_resolver(Arc::new(Current::new(identity.clone())?));
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The certificate that the hub has at the time: it is renewed while the hub runs.
#[derive(Debug)]
struct Current {
    identity: Arc<Identity>,
    last: RwLock<Arc<CertifiedKey>>,
}

impl Current {
    fn new(identity: Arc<Identity>) -> Result<Self, String> {
        let last = RwLock::new(Arc::new(certified(&identity)?));
        Ok(Self { identity, last })
    }

    fn pair(&self) -> Arc<CertifiedKey> {
        let last = unpoisoned(self.last.read()).clone();
        if last.cert.first().is_some_and(|shown| self.identity.has_certificate(shown)) {
            return last;
        }
        // A pair that cannot be used was refused when it came, so the one before is only a precaution.
        let renewed = certified(&self.identity).map_or(last, Arc::new);
        unpoisoned(self.last.write()).clone_from(&renewed);
        renewed
    }
}

fn certified(identity: &Identity) -> Result<CertifiedKey, String> {
    let (certificate, pkcs8) = identity.pair();
    let key = any_supported_type(&PrivatePkcs8KeyDer::from(pkcs8).into());
    Ok(CertifiedKey::new(vec![CertificateDer::from(certificate)], key.map_err(|e| e.to_string())?))
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.pair())
    }
}

#[cfg(test)]
mod tests {
    use skopos_access::Names;
    use skopos_wire::{Authority, new_key};

    use super::*;

    #[test]
    fn a_renewed_certificate_is_shown_to_the_next_client() {
        let dir = tempfile::tempdir().expect("a folder");
        let names = Names { site: "s".to_owned(), node: "hub".to_owned(), is_hub: true };
        let authority = Authority::create(dir.path(), &names, &[]).expect("made");
        let identity = Arc::new(Identity::load(dir.path()).expect("sound").expect("there"));
        let current = Current::new(identity.clone()).expect("a pair");
        let (pkcs8, public) = new_key().expect("a key");
        let certificate = authority.issue(&names, &[], public).expect("issued");
        let shown = || current.pair().cert[0].to_vec();
        assert_ne!(shown(), certificate);
        identity.replace(&pkcs8, &certificate).expect("replaced");
        assert_eq!(shown(), certificate);
    }
}
