//! Authenticates datagrams with reports.
//!
//! # Layout
//! The last report of a datagram is of type 0 (inner only) with domain-specific data (inner type 2): four words
//! with the first 16 bytes of HMAC-SHA-256 over all bytes before the report. A collector that does not know the
//! tag skips it, because it knows the length of the report.

use std::fmt;

use ring::hmac;

/// Bytes of the tag in a datagram: its report of one word, and 16 bytes.
pub const TAG_REPORT_BYTES: usize = 4 + TAG_BYTES;

const TAG_BYTES: usize = 16;
const TAG_HEAD: [u8; 4] = [0x02, (TAG_BYTES / 4) as u8, 0, 0];

/// The least bytes of a key. A shorter key can be guessed.
pub const MIN_KEY_BYTES: usize = 16;

/// A key that the nodes of a site and their collector share.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Makes a key of these bytes; `None` if they are fewer than [`MIN_KEY_BYTES`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= MIN_KEY_BYTES).then(|| Self(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// Appends the tag to a datagram.
    pub fn append(&self, datagram: &mut Vec<u8>) {
        let tag = hmac::sign(&self.0, datagram);
        datagram.extend(TAG_HEAD);
        datagram.extend(&tag.as_ref()[..TAG_BYTES]);
    }

    /// Returns the datagram without its tag; `None` if it has no tag or a wrong one.
    pub fn verified<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let (content, report) =
            datagram.split_at_checked(datagram.len().checked_sub(TAG_REPORT_BYTES)?)?;
        let tag = report.strip_prefix(&TAG_HEAD)?;
        let expected = hmac::sign(&self.0, content);
        let differ = tag.iter().zip(expected.as_ref()).fold(0, |all, (a, b)| all | (a ^ b));
        (differ == 0).then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_good_for_its_bytes_and_its_key_only() {
        let key = Key::new(&[7; 32]).expect("long enough");
        let mut datagram = vec![1, 2, 3];
        key.append(&mut datagram);
        assert_eq!(datagram.len(), 3 + TAG_REPORT_BYTES);
        assert_eq!(key.verified(&datagram), Some(&[1, 2, 3][..]));
        for at in 0..datagram.len() {
            let mut forged = datagram.clone();
            forged[at] ^= 1;
            assert_eq!(key.verified(&forged), None, "{at}");
        }
        for end in 0..datagram.len() {
            assert_eq!(key.verified(&datagram[..end]), None, "{end}");
        }
        assert_eq!(Key::new(&[8; 32]).expect("long enough").verified(&datagram), None);
        assert!(Key::new(&[7; 15]).is_none());
    }
}
