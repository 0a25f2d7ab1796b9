//! The certificates and tokens of a site, as its hub gives them out.

mod register;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use skopos_access::{Action, Caller, Names, is_segment, may};
use skopos_wire::{Authority, Error, Identity, Issuer, possession};

use self::register::now;
pub use self::register::{Certified, Grant, Register, Token, hex, unhex};

/// Beginning of a token to join with. The fingerprint of the authority and the secret follow.
const JOIN: &str = "skopos-join-";

/// The certificates and tokens of a site.
pub struct Pki {
    identity: Arc<Identity>,
    /// `None` on a hub that cannot sign.
    authority: Option<Authority>,
    register: Register,
}

/// The files that a node gets when it joins, in DER.
pub struct Joined {
    /// The certificate of the authority.
    pub authority: Vec<u8>,
    /// The certificate of the node.
    pub certificate: Vec<u8>,
}

impl Pki {
    /// Opens the certificates and tokens beside an identity.
    ///
    /// # Errors
    /// The key of the authority cannot be read.
    pub fn open(identity: Arc<Identity>) -> Result<Self, Error> {
        let authority = Authority::load(identity.folder(), &identity.names().site)?;
        let register = Register::new(identity.folder());
        Ok(Self { identity, authority, register })
    }

    /// Returns the identity of the hub.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Returns the caller who shows this token; `None` if it is not valid.
    pub fn caller_of(&self, token: &str) -> Option<Caller> {
        match token.strip_prefix(JOIN) {
            Some(rest) => self.register.caller_of(rest.split_once('-')?.1),
            None => self.register.caller_of(token),
        }
    }

    /// Makes the certificate of a node that joins with the request `request` from the address `from`.
    ///
    /// # Errors
    /// The reason, for people.
    pub fn join(
        &self,
        caller: &Caller,
        node: &str,
        request: &[u8],
        from: IpAddr,
    ) -> Result<Joined, String> {
        may(caller, Action::Join { node }).map_err(|denied| denied.to_string())?;
        if !is_segment(node) {
            return Err(format!("`{node}` is not the name of a node"));
        }
        let own = self.identity.names();
        if node == own.node {
            return Err(format!("`{node}` is the hub itself"));
        }
        let key =
            possession::check(request, node).ok_or("the request is not signed with its key")?;
        let taken =
            || format!("`{node}` has a certificate; `skopos pki forget {node}` frees the name");
        let hosts = vec![from.to_canonical().to_string()];
        let certified =
            Certified { node: node.to_owned(), key: key.to_vec(), hosts, issued_at: now() };
        let known = self.register.node(node).map_err(|e| e.to_string())?;
        // A program that did not get the answer asks again.
        let is_again = known.is_some_and(|known| known.key == certified.key);
        let is_named = matches!(caller, Caller::Invited { node: Some(_) });
        self.register.note(&certified, !is_again && !is_named).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => taken(),
            _ => e.to_string(),
        })?;
        let names = Names { site: own.site, node: node.to_owned(), is_hub: false };
        let certificate = self.signed(&names, &certified.hosts, key)?;
        Ok(Joined { authority: self.identity.authority().to_vec(), certificate })
    }

    fn signed(&self, names: &Names, hosts: &[String], key: [u8; 32]) -> Result<Vec<u8>, String> {
        let authority = self.authority.as_ref();
        let authority =
            authority.ok_or("this hub has no authority; ask the first hub of the site")?;
        authority.issue(names, hosts, key)
    }
}

/// Renews certificates of nodes that were not forgotten.
impl Issuer for Pki {
    fn issue(&self, names: &Names, key: [u8; 32]) -> Result<Vec<u8>, String> {
        let unknown = || format!("the node {} was forgotten here; it may join again", names.node);
        let known = self.register.node(&names.node).map_err(|e| e.to_string())?;
        let known = known.ok_or_else(unknown)?;
        let certificate = self.signed(names, &known.hosts, key)?;
        let renewed = Certified { key: key.to_vec(), issued_at: now(), ..known };
        self.register.note(&renewed, false).map_err(|e| e.to_string())?;
        Ok(certificate)
    }
}

/// Creates the authority of a site in `folder`, with the identity of its first hub.
///
/// # Errors
/// There is one already, or the folder cannot be written.
pub fn init(folder: &Path, names: &Names, hosts: Vec<String>) -> Result<(), Error> {
    Authority::create(folder, names, &hosts)?;
    let node = names.node.clone();
    let certified = Certified { node, key: Vec::new(), hosts, issued_at: now() };
    let noted = Register::new(folder).note(&certified, true);
    noted.map_err(|e| Error::Identity { file: folder.to_path_buf(), why: e.to_string() })
}

/// Returns the token with which a node joins: the secret, and the fingerprint by which the node knows the authority.
pub fn join_token(identity: &Identity, secret: &str) -> String {
    format!("{JOIN}{}-{secret}", fingerprint(identity.authority()))
}

/// Returns the fingerprint of the authority in a token to join with.
pub fn fingerprint_in(token: &str) -> Option<&str> {
    Some(token.strip_prefix(JOIN)?.split_once('-')?.0)
}

/// Returns the fingerprint of a certificate in DER.
pub fn fingerprint(certificate: &[u8]) -> String {
    use sha2::Digest as _;
    hex(&sha2::Sha256::digest(certificate))
}
