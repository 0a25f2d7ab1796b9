//! Keys and tags: HMAC with SHA-256 (RFC 2104), truncated to 128 bits.
//!
//! A site has one key. The key of a node is derived from it, so a node that is broken into can only forge its own
//! reports.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::Error;

/// Length of a tag in bytes.
pub(super) const TAG_BYTES: usize = 16;

/// The shortest secret: as many bits as a tag.
const MIN_SECRET_BYTES: usize = 16;

/// Length of a block of SHA-256 in bytes.
const BLOCK_BYTES: usize = 64;

/// Separates keys of nodes from other uses of the site's key.
const LABEL: &[u8] = b"skopos anomaly report 1 node key";

/// The key of a site, from which the keys of its nodes are derived.
#[derive(Clone)]
pub struct SiteKey(Hmac<Sha256>);

/// The key of one node.
#[derive(Clone)]
pub struct NodeKey(Hmac<Sha256>);

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
        let mut mac = self.0.clone();
        mac.update(LABEL);
        mac.update(&id.to_be_bytes());
        mac.finalize().into_bytes().into()
    }
}

impl NodeKey {
    /// Makes the key of a node of its [secret](SiteKey::node_secret).
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(keyed(secret))
    }

    /// Returns the tag of `bytes`.
    pub(super) fn tag(&self, bytes: &[u8]) -> [u8; TAG_BYTES] {
        let mut mac = self.0.clone();
        mac.update(bytes);
        let whole: [u8; 32] = mac.finalize().into_bytes().into();
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&whole[..TAG_BYTES]);
        tag
    }

    /// Returns true if `tag` is the tag of `bytes`. The comparison takes the same time for every wrong tag.
    pub(super) fn verifies(&self, bytes: &[u8], tag: &[u8]) -> bool {
        let mut mac = self.0.clone();
        mac.update(bytes);
        tag.len() == TAG_BYTES && mac.verify_truncated_left(tag).is_ok()
    }
}

fn keyed(secret: &[u8]) -> Hmac<Sha256> {
    // RFC 2104: a key that is longer than a block is hashed, a shorter one is filled up with zeros.
    let digest: [u8; 32] = Sha256::digest(secret).into();
    let key = if secret.len() > BLOCK_BYTES { &digest[..] } else { secret };
    let mut block = [0; BLOCK_BYTES];
    block[..key.len()].copy_from_slice(key);
    Hmac::new(&block.into())
}

/// Returns the id of a node: the first 8 bytes of the SHA-256 of its name.
pub(super) fn node_id(name: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(name.as_bytes()).into();
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
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
