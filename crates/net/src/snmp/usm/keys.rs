//! Keys of a user (RFC 3414, appendix A, and RFC 7860), and what is made with them.

use std::fmt;

use aes::Aes128;
use aes::cipher::{BlockEncrypt as _, KeyInit as _};
use ring::{digest, hmac};

use super::super::auth::Auth;

/// Bytes of which the digest of a passphrase is made (RFC 3414, appendix A.2).
const EXPANDED_BYTES: usize = 1 << 20;

/// Bytes of a key and a block of AES-128.
pub(super) const BLOCK_BYTES: usize = 16;

/// The most bytes of a tag.
pub(super) const MAX_TAG_BYTES: usize = 24;

/// The digest of a passphrase. It is made once, for it takes milliseconds.
#[derive(Clone)]
pub(in super::super) struct MasterKey {
    auth: Auth,
    digest: digest::Digest,
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey")
    }
}

impl MasterKey {
    /// Makes the key of a passphrase, which is not empty.
    pub(in super::super) fn new(auth: Auth, passphrase: &[u8]) -> Self {
        let mut context = digest::Context::new(algorithm(auth));
        let mut left = EXPANDED_BYTES;
        while left > 0 && !passphrase.is_empty() {
            let take = passphrase.len().min(left);
            context.update(&passphrase[..take]);
            left -= take;
        }
        Self { auth, digest: context.finish() }
    }

    /// Returns the bytes of the key that is good for one engine only.
    fn localized(&self, engine: &[u8]) -> digest::Digest {
        let mut context = digest::Context::new(algorithm(self.auth));
        context.update(self.digest.as_ref());
        context.update(engine);
        context.update(self.digest.as_ref());
        context.finish()
    }

    /// Returns the key for tags of messages with an engine.
    pub(super) fn tag_key(&self, engine: &[u8]) -> TagKey {
        let (algorithm, bytes) = match self.auth {
            Auth::Sha1 => (hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, 12),
            Auth::Sha256 => (hmac::HMAC_SHA256, MAX_TAG_BYTES),
        };
        TagKey { key: hmac::Key::new(algorithm, self.localized(engine).as_ref()), bytes }
    }

    /// Returns the key for the contents of messages with an engine.
    pub(super) fn cipher(&self, engine: &[u8]) -> Cipher {
        let mut key = [0; BLOCK_BYTES];
        // A digest has 20 bytes or more.
        for (to, from) in key.iter_mut().zip(self.localized(engine).as_ref()) {
            *to = *from;
        }
        Cipher(Aes128::new(&key.into()))
    }
}

fn algorithm(auth: Auth) -> &'static digest::Algorithm {
    match auth {
        Auth::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        Auth::Sha256 => &digest::SHA256,
    }
}

/// Makes tags of messages, and compares them.
#[derive(Debug)]
pub(super) struct TagKey {
    key: hmac::Key,
    /// Bytes of a tag: the first ones of the HMAC.
    pub(super) bytes: usize,
}

impl TagKey {
    /// Returns the tag of a message in which the place of the tag has zeros. It has [`TagKey::bytes`] bytes that count.
    pub(super) fn tag(&self, message: &[u8]) -> [u8; MAX_TAG_BYTES] {
        let whole = hmac::sign(&self.key, message);
        let mut tag = [0; MAX_TAG_BYTES];
        for (to, from) in tag.iter_mut().take(self.bytes).zip(whole.as_ref()) {
            *to = *from;
        }
        tag
    }

    /// Returns true if the tag is that of the message. The time that it takes does not depend on the tag.
    pub(super) fn is_right(&self, message: &[u8], tag: &[u8]) -> bool {
        let expected = self.tag(message);
        let pairs = tag.iter().zip(&expected[..self.bytes]);
        tag.len() == self.bytes && pairs.fold(0, |all, (a, b)| all | (a ^ b)) == 0
    }
}

/// AES-128 in the mode CFB with 128 bits (RFC 3826).
pub(super) struct Cipher(Aes128);

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher")
    }
}

impl Cipher {
    /// Encrypts `bytes` in place.
    pub(super) fn encrypt(&self, vector: [u8; BLOCK_BYTES], bytes: &mut [u8]) {
        let mut mask = vector;
        for chunk in bytes.chunks_mut(BLOCK_BYTES) {
            self.0.encrypt_block((&mut mask).into());
            for (byte, mask) in chunk.iter_mut().zip(&mut mask) {
                *byte ^= *mask;
                *mask = *byte;
            }
        }
    }

    /// Decrypts `bytes` in place.
    pub(super) fn decrypt(&self, vector: [u8; BLOCK_BYTES], bytes: &mut [u8]) {
        let mut mask = vector;
        for chunk in bytes.chunks_mut(BLOCK_BYTES) {
            self.0.encrypt_block((&mut mask).into());
            for (byte, mask) in chunk.iter_mut().zip(&mut mask) {
                let cipher = *byte;
                *byte ^= *mask;
                *mask = cipher;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |c: u8| (c as char).to_digit(16).expect("hex") as u8;
        hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }

    #[test]
    fn keys_are_those_of_the_specification() {
        // RFC 3414, appendix A.3.2.
        let key = MasterKey::new(Auth::Sha1, b"maplesyrup");
        assert_eq!(key.digest.as_ref(), bytes("9fb5cc0381497b3793528939ff788d5d79145211"));
        let engine = bytes("000000000000000000000002");
        assert_eq!(
            key.localized(&engine).as_ref(),
            bytes("6695febc9288e36282235fc7151f128497b38f3f")
        );
    }

    #[test]
    fn the_cipher_is_that_of_the_standard() {
        // NIST SP 800-38A, F.3.13, the first two blocks.
        let cipher = Cipher(
            Aes128::new_from_slice(&bytes("2b7e151628aed2a6abf7158809cf4f3c")).expect("16 bytes"),
        );
        let vector: [u8; 16] =
            bytes("000102030405060708090a0b0c0d0e0f").try_into().expect("16 bytes");
        let plain = bytes("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
        let mut text = plain.clone();
        cipher.encrypt(vector, &mut text);
        assert_eq!(text, bytes("3b3fd92eb72dad20333449f8e83cfb4ac8a64537a0b3a93fcde3cdad9f1ce58b"));
        cipher.decrypt(vector, &mut text);
        assert_eq!(text, plain);
        // An unfinished block.
        let mut part = plain[..21].to_vec();
        cipher.encrypt(vector, &mut part);
        assert_eq!(part, bytes("3b3fd92eb72dad20333449f8e83cfb4ac8a64537a0"));
    }

    #[test]
    fn a_tag_is_good_for_its_message_only() {
        for auth in [Auth::Sha1, Auth::Sha256] {
            let key = MasterKey::new(auth, b"a passphrase").tag_key(b"engine");
            let tag = key.tag(b"message");
            assert!(key.is_right(b"message", &tag[..key.bytes]));
            assert!(!key.is_right(b"massage", &tag[..key.bytes]));
            assert!(!key.is_right(b"message", &tag[..key.bytes - 1]));
            assert!(!key.is_right(b"message", &[]));
        }
    }
}
