//! Renewal: a node gets its next certificate from a hub of its site, over the live plane.
//!
//! The node makes a new pair of keys, and its question, signed with the old key, carries the new public key. The node needs
//! no trust in the hub: it takes only a certificate of the authority with its own names and its new key.

use std::sync::Arc;
use std::time::Duration;

use skopos_access::{Action, Caller, Names};
use zenoh::Wait as _;
use zenoh::query::{Query, Queryable};

use crate::drops::Dropped;
use crate::error::Error;
use crate::keys;
use crate::places::{Checking, Places};
use crate::plane::Plane;
use crate::trust::{Identity, ProofRules, new_key, possession};

/// Time in which a hub answers.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the certificate of a node with this public key, or gives the reason why not.
pub trait Issuer: Send + Sync + 'static {
    /// Returns the certificate with the key `new`, in DER. The request was signed with the certificate of `old`.
    ///
    /// # Errors
    /// The reason, for people.
    fn issue(&self, names: &Names, old: [u8; 32], new: [u8; 32]) -> Result<Vec<u8>, String>;
}

/// Answers renewals until it is dropped.
#[derive(Debug)]
pub struct RenewalResponder {
    _queryable: Queryable<()>,
}

impl<T: Issuer> Issuer for Arc<T> {
    fn issue(&self, names: &Names, old: [u8; 32], new: [u8; 32]) -> Result<Vec<u8>, String> {
        (**self).issue(names, old, new)
    }
}

impl Plane {
    /// Answers the renewals of a site's nodes with the certificates of `issuer`.
    ///
    /// # Errors
    /// The session is closed.
    pub fn serve_renewals(&self, issuer: impl Issuer) -> Result<RenewalResponder, Error> {
        let key = keys::of_name(&self.site, "renew", "*");
        let (issuer, rules, places) = (Arc::new(issuer), self.rules.clone(), Places::default());
        let drops = self.drops.clone();
        let queryable = self.session.declare_queryable(key).callback(move |query| {
            let (issuer, rules) = (issuer.clone(), rules.clone());
            let is_begun = places.on_thread(move |checking| {
                let _ = match issued(&query, checking, &rules, &*issuer) {
                    Ok(certificate) => query.reply(query.key_expr().clone(), certificate).wait(),
                    Err(why) => query.reply_err(why).wait(),
                };
            });
            if !is_begun {
                drops.count(Dropped::RenewalRequest);
            }
        });
        let queryable = queryable.wait().map_err(|e| Error::plane(&e))?;
        Ok(RenewalResponder { _queryable: queryable })
    }

    /// Gets a new certificate for this program, with a new key, and replaces both in its files. Connections that are
    /// open keep the old one until it ends.
    ///
    /// # Errors
    /// This program has no certificate, no hub answers, the hub refuses, or the files cannot be written.
    pub fn renew(&self) -> Result<(), Error> {
        let none = || Error::NoIdentity("renew".to_owned());
        let identity: &Arc<Identity> = self.rules.identity().ok_or_else(none)?;
        let node = identity.names().node;
        let failed = |e: std::io::Error| Error::Plane(e.to_string());
        let (pkcs8, _) = new_key().map_err(failed)?;
        let request = possession::prove(&pkcs8, &node).ok_or_else(none)?;
        let key = keys::of_name(&self.site, "renew", &node);
        let sent = self.rules.ask(&key, &request)?;
        let get = self.ask_all(key).payload(request).attachment(sent.proof).timeout(TIMEOUT);
        let replies = get.wait().map_err(|e| Error::plane(&e))?;
        let mut last = Error::NoAnswer { node: "hub".to_owned(), within: TIMEOUT };
        while let Ok(Some(reply)) = replies.recv_timeout(TIMEOUT) {
            let renewed = match reply.result() {
                Ok(sample) => identity.replace(&pkcs8, &sample.payload().to_bytes()),
                Err(refused) => Err(Error::refused(&refused.payload().to_bytes())),
            };
            match renewed {
                Ok(()) => return Ok(()),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Returns true if this program has a certificate.
    pub fn has_identity(&self) -> bool {
        self.rules.identity().is_some()
    }

    /// Returns true if a new certificate should be asked for.
    pub fn is_renewal_due(&self) -> bool {
        self.rules.identity().is_some_and(|identity| identity.is_renewal_due())
    }
}

/// Returns the certificate for a question, or the reason why there is none.
fn issued(
    query: &Query,
    checking: Checking,
    rules: &ProofRules,
    issuer: &dyn Issuer,
) -> Result<Vec<u8>, String> {
    let node = query.key_expr().as_str().rsplit('/').next().unwrap_or_default().to_owned();
    let received = rules.receive(query, Action::Renew { node: &node });
    let received = received.map_err(|e| e.to_string())?;
    let place = checking.admit(&received.caller);
    let _place = place.ok_or("the hub answers too many requests; ask again")?;
    let (Caller::Node(names), Some(old)) = (received.caller, received.key) else {
        return Err("a certificate is renewed for a node that has one".to_owned());
    };
    let request = query.payload().map(|payload| payload.to_bytes().into_owned());
    let key = request.and_then(|request| possession::check(&request, &node));
    issuer.issue(&names, old, key.ok_or("the request is not signed with its key")?)
}
