//! Keys and tags: HMAC with SHA-256 (RFC 2104), truncated to 128 bits.
//!
//! A site has one key. The key of a node is derived from it, so a node that is broken into can only forge its own
//! reports.

use std::fmt;

use ring::{digest, hmac};

use crate::Error;

/// Length of a tag in bytes.
pub(super) const TAG_BYTES: usize = 16;

/// The shortest secret: as many bits as a tag.
const MIN_SECRET_BYTES: usize = 16;

/// Separates keys of nodes from other uses of the site's key.
const LABEL: &[u8] = b"skopos anomaly report 1 node key";

/// The key of a site, from which the keys of its nodes are derived.
#[derive(Clone)]
pub struct SiteKey(hmac::Key);

/// The key of one node.
#[derive(Clone)]
pub struct NodeKey(hmac::Key);

impl SiteKey {
    /// Makes a key of a secret.
    ///
    /// # Errors
    /// The secret is shorter than 16 bytes.
    pub fn new(secret: &[u8]) -> Result<Self, Error> {
        if secret.len() < MIN_SECRET_BYTES {
            let why =
                format!("it has {} bytes; at least {MIN_SECRET_BYTES} are needed", secret.len());
            return Err(Error::malformed("the key of a site", why));
        }
        Ok(Self(keyed(secret)))
    }

    /// Returns the secret of a node: what that node needs in order to report, and no more.
    pub fn node_secret(&self, node: &str) -> [u8; 32] {
        self.secret_of(node_id(node))
    }

    /// Returns the key of the node with this id.
    pub(super) fn node(&self, id: u64) -> NodeKey {
        NodeKey::new(&self.secret_of(id))
    }

    fn secret_of(&self, id: u64) -> [u8; 32] {
        let mut mac = hmac::Context::with_key(&self.0);
        mac.update(LABEL);
        mac.update(&id.to_be_bytes());
        let mut secret = [0; 32];
        secret.copy_from_slice(mac.sign().as_ref());
        secret
    }
}

impl NodeKey {
    /// Makes the key of a node of its [secret](SiteKey::node_secret).
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(keyed(secret))
    }

    /// Returns the tag of `bytes`.
    pub(super) fn tag(&self, bytes: &[u8]) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hmac::sign(&self.0, bytes).as_ref()[..TAG_BYTES]);
        tag
    }

    /// Returns true if `tag` is the tag of `bytes`. The comparison takes the same time for every wrong tag.
    pub(super) fn verifies(&self, bytes: &[u8], tag: &[u8]) -> bool {
        let differ = self.tag(bytes).iter().zip(tag).fold(0, |all, (a, b)| all | (a ^ b));
        tag.len() == TAG_BYTES && differ == 0
    }
}

fn keyed(secret: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret)
}

/// Returns the id of a node: the first 8 bytes of the SHA-256 of its name.
pub(super) fn node_id(name: &str) -> u64 {
    let digest = digest::digest(&digest::SHA256, name.as_bytes());
    digest.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

impl fmt::Debug for SiteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SiteKey(secret)")
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_the_first_half_of_the_hmac_of_rfc_4231() {
        // Test case 1 has a key of 20 bytes.
        let key = NodeKey(keyed(&[0x0b; 20]));
        let expected = 0xb034_4c61_d8db_3853_5ca8_afce_af0b_f12b_u128.to_be_bytes();
        assert_eq!(key.tag(b"Hi There"), expected);
        assert!(key.verifies(b"Hi There", &expected));
        assert!(!key.verifies(b"Hi There", &expected[..8]), "a shorter tag is easier to guess");
        assert!(!key.verifies(b"Hi There", &[]));
        assert!(!key.verifies(b"Hi there", &expected));
    }

    #[test]
    fn each_node_has_a_key_of_its_own_and_secrets_are_not_printed() {
        let site = SiteKey::new(&[7; 16]).expect("long enough");
        assert_ne!(site.node_secret("n01"), site.node_secret("n02"));
        assert_eq!(format!("{site:?}"), "SiteKey(secret)");
        let why = SiteKey::new(&[7; 15]).expect_err("too short").to_string();
        assert_eq!(why, "the key of a site: it has 15 bytes; at least 16 are needed");
    }
}
