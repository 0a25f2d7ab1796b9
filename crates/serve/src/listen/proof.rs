//! The certificate of a connected node, which may end while the connection is open.

use std::sync::Arc;

use skopos_access::Names;
use skopos_wire::Identity;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The certificate of a node that has connected.
pub(super) struct Proof {
    pub(super) identity: Arc<Identity>,
    pub(super) certificate: CertificateDer<'static>,
}

impl Proof {
    /// Returns the names of the node; `None` once the certificate is not valid any more.
    pub(super) fn names(&self) -> Option<Names> {
        self.identity.names_in(&self.certificate)
    }
}
