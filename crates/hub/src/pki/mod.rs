//! The certificates and tokens of a site, as its hub gives them out.

mod recent;
mod register;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use skopos_access::{Action, Caller, Denied, Invitation, Names, is_segment, may};
use skopos_wire::{Authority, Error, Identity, Issuer, new_key, possession};
use thiserror::Error;

use self::recent::RecentCallers;
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
    recent: RecentCallers,
}

/// The files that a node gets when it joins, in DER.
pub struct Joined {
    /// The certificate of the authority.
    pub authority: Vec<u8>,
    /// The certificate of the node.
    pub certificate: Vec<u8>,
}

/// The reason why a node cannot join.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JoinError {
    /// The policy refuses.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The request is not one to join.
    #[error("{0}")]
    Invalid(String),
    /// Another node has this name.
    #[error("`{0}` has a certificate; `skopos pki forget {0}` frees the name")]
    Taken(String),
    /// This hub cannot sign, or cannot keep what it signed.
    #[error("{0}")]
    Unable(String),
}

impl Pki {
    /// Opens the certificates and tokens beside an identity.
    ///
    /// # Errors
    /// The key of the authority cannot be read.
    pub fn open(identity: Arc<Identity>) -> Result<Self, Error> {
        let authority = Authority::load(identity.folder(), &identity.names().site)?;
        let register = Register::new(identity.folder());
        let pki = Self { identity, authority, register, recent: RecentCallers::default() };
        pki.renew_own()?;
        Ok(pki)
    }

    /// Renews the certificate of the hub that has the authority, when it is due.
    fn renew_own(&self) -> Result<(), Error> {
        let names = self.identity.names();
        match &self.authority {
            Some(authority) if names.is_hub && self.identity.is_renewal_due() => {
                renew_hub(authority, &self.register, &names, |pkcs8, certificate| {
                    self.identity.replace(pkcs8, certificate)
                })
            }
            _ => Ok(()),
        }
    }

    /// Returns the identity of the hub.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Returns the caller who shows this token; `None` if it is not valid. Reads a file.
    pub fn caller_of(&self, token: &str) -> Option<Caller> {
        match token.strip_prefix(JOIN) {
            Some(rest) => self.register.caller_of(rest.split_once('-')?.1),
            None => {
                let caller = self.register.caller_of(token)?;
                self.recent.add(token, &caller);
                Some(caller)
            }
        }
    }

    /// Returns the caller who shows this token of a user if [`caller_of`](Self::caller_of) found it a moment ago.
    pub fn recent_caller(&self, token: &str) -> Option<Caller> {
        self.recent.get(token)
    }

    /// Returns the names of the hub.
    pub fn names(&self) -> Names {
        self.identity.names()
    }

    /// Returns true if this hub can sign certificates.
    pub fn has_authority(&self) -> bool {
        self.authority.is_some()
    }

    /// Makes the certificate of a node that joins with the request `request` from the address `from`.
    ///
    /// # Errors
    /// The policy refuses, the request is not valid, the name is taken, or this hub cannot sign.
    pub fn join(
        &self,
        caller: &Caller,
        node: &str,
        request: &[u8],
        from: IpAddr,
    ) -> Result<Joined, JoinError> {
        may(caller, Action::Join { node })?;
        let Caller::Invited(Invitation { node: only, hub_at }) = caller else {
            return Err(JoinError::Invalid("the request has no token to join with".to_owned()));
        };
        if !is_segment(node) {
            return Err(JoinError::Invalid(format!("`{node}` is not the name of a node")));
        }
        let own = self.identity.names();
        if node == own.node {
            return Err(JoinError::Invalid(format!("`{node}` is the hub itself")));
        }
        let unsigned = || JoinError::Invalid("the request is not signed with its key".to_owned());
        let key = possession::check(request, node).ok_or_else(unsigned)?;
        let taken = || JoinError::Taken(node.to_owned());
        let broken = |e: std::io::Error| JoinError::Unable(e.to_string());
        let mut hosts = vec![from.to_canonical().to_string()];
        hosts.extend_from_slice(hub_at);
        let names = Names { site: own.site, node: node.to_owned(), is_hub: !hub_at.is_empty() };
        // A hub that cannot sign must not take the name.
        let certificate = self.signed(&names, &hosts, key).map_err(JoinError::Unable)?;
        let (node, key, before) = (node.to_owned(), key.to_vec(), Vec::new());
        let certified = Certified { node, key, before, hosts, issued_at: now() };
        let _locked = self.register.lock().map_err(broken)?;
        let is_for_it = |grant: &Grant| match grant {
            Grant::Join { node, .. } => node.as_ref() == Some(&certified.node),
            Grant::User { .. } => false,
        };
        // Under the lock, so that of two requests with one token only the first joins.
        if only.is_some()
            && !self.register.tokens().map_err(broken)?.iter().any(|token| is_for_it(&token.grant))
        {
            return Err(JoinError::Invalid("the token has been used".to_owned()));
        }
        self.register.note(&certified, only.is_none()).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => taken(),
            _ => broken(e),
        })?;
        // A token for one node is for one time: whoever has seen it cannot take the place of the node.
        self.register.revoke(is_for_it).map_err(broken)?;
        Ok(Joined { authority: self.identity.authority().to_vec(), certificate })
    }

    fn signed(&self, names: &Names, hosts: &[String], key: [u8; 32]) -> Result<Vec<u8>, String> {
        let authority = self.authority.as_ref();
        let authority =
            authority.ok_or("this hub has no authority; ask the first hub of the site")?;
        authority.issue(names, hosts, key)
    }
}

/// Renews certificates of nodes that were not forgotten. The old certificate must be the last one of the name, so that a key
/// of a node that has joined again since is worth nothing.
impl Issuer for Pki {
    fn issue(&self, names: &Names, old: [u8; 32], new: [u8; 32]) -> Result<Vec<u8>, String> {
        let unknown = || format!("the node {} was forgotten here; it may join again", names.node);
        // A failure here shows when the hub starts; the node is renewed all the same.
        let _ = self.renew_own();
        let _locked = self.register.lock().map_err(|e| e.to_string())?;
        let known = self.register.node(&names.node).map_err(|e| e.to_string())?;
        let known = known.ok_or_else(unknown)?;
        // The key of the first hub is not in the register until it is renewed.
        let is_first = names.is_hub && known.key.is_empty();
        if !is_first && ![&known.key, &known.before].contains(&&old.to_vec()) {
            return Err(format!("another certificate of {} is valid", names.node));
        }
        let certificate = self.signed(names, &known.hosts, new)?;
        let renewed =
            Certified { key: new.to_vec(), before: old.to_vec(), issued_at: now(), ..known };
        self.register.note(&renewed, false).map_err(|e| e.to_string())?;
        Ok(certificate)
    }
}

/// Renews the certificate of a hub in `folder`, which has the authority; the old one may have ended. Returns its names.
///
/// # Errors
/// There is no authority, the hub is not in the register, or the folder cannot be written.
pub fn renew(folder: &Path) -> Result<Names, Error> {
    let failed = |why: String| Error::Identity { file: folder.to_path_buf(), why };
    let names = Identity::names_kept_in(folder)?;
    let none = || failed("there is no authority; `skopos join` gets a new certificate".to_owned());
    let authority = Authority::load(folder, &names.site)?.ok_or_else(none)?;
    renew_hub(&authority, &Register::new(folder), &names, |pkcs8, certificate| {
        Identity::save(folder, pkcs8, certificate, None).map_err(|e| failed(e.to_string()))
    })?;
    Ok(names)
}

/// Makes a new pair of keys and a certificate for the hub of these names, gives both to `keep`, and notes them.
fn renew_hub(
    authority: &Authority,
    register: &Register,
    names: &Names,
    keep: impl FnOnce(&[u8], &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |why: String| Error::Identity { file: register.folder().to_path_buf(), why };
    let broken = |e: std::io::Error| failed(e.to_string());
    let _locked = register.lock().map_err(broken)?;
    let known = register.node(&names.node).map_err(broken)?;
    let known = known.ok_or_else(|| failed("the hub is not in its register".to_owned()))?;
    let (pkcs8, public) = new_key().map_err(broken)?;
    let certificate = authority.issue(names, &known.hosts, public).map_err(failed)?;
    keep(&pkcs8, &certificate)?;
    let renewed = Certified { key: public.to_vec(), issued_at: now(), ..known };
    register.note(&renewed, false).map_err(broken)
}

/// Creates the authority of a site in `folder`, with the identity of its first hub.
///
/// # Errors
/// There is one already, or the folder cannot be written.
pub fn init(folder: &Path, names: &Names, hosts: Vec<String>) -> Result<(), Error> {
    Authority::create(folder, names, &hosts)?;
    let node = names.node.clone();
    let certified =
        Certified { node, key: Vec::new(), before: Vec::new(), hosts, issued_at: now() };
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_key_from_before_a_node_joined_again_is_not_renewed() {
        let dir = tempfile::tempdir().expect("a folder");
        let hub = Names { site: "s".to_owned(), node: "hub".to_owned(), is_hub: true };
        init(dir.path(), &hub, vec!["hub".to_owned()]).expect("made");
        let identity = Identity::load(dir.path()).expect("sound").expect("there");
        let pki = Pki::open(Arc::new(identity)).expect("open");
        let join = |caller: &Caller| {
            let (pkcs8, public) = new_key().expect("a key");
            let request = possession::prove(&pkcs8, "n01").expect("signed");
            let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
            pki.join(caller, "n01", &request, from).map(|_| public)
        };
        let any = Caller::Invited(Invitation::default());
        let stolen = join(&any).expect("joined");
        assert!(join(&any).is_err(), "the name is taken");
        let names = Names { node: "n01".to_owned(), is_hub: false, ..hub };
        let next = new_key().expect("a key").1;
        pki.issue(&names, stolen, next).expect("renewed");
        pki.issue(&names, stolen, next).expect("the answer did not arrive");
        let named = Some("n01".to_owned());
        let named = Caller::Invited(Invitation { node: named, hub_at: Vec::new() });
        assert!(join(&named).is_err(), "there is no such token");
        let grant = Grant::Join { node: Some("n01".to_owned()), hub_at: Vec::new() };
        pki.register.grant(grant, std::time::Duration::from_secs(60)).expect("a token");
        let own = join(&named).expect("joined again");
        assert!(join(&named).is_err(), "another request had the token, too");
        for old in [stolen, next] {
            assert!(pki.issue(&names, old, next).is_err());
        }
        pki.issue(&names, own, next).expect("renewed");
        assert!(pki.register.forget("n01").expect("forgotten"));
        assert!(pki.issue(&names, next, next).is_err(), "it was forgotten");
        let left = std::fs::read_dir(dir.path().join("nodes")).expect("a folder").count();
        assert_eq!(left, 1, "the hub alone, and no file of a write");
    }
}
