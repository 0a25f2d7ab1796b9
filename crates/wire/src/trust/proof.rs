//! Proofs: who made a question or an answer.
//!
//! ```text
//! "SKP" layout   4 bytes
//! certificate    length, bytes
//! extra          length, bytes: of a question its nonce, of a snapshot the publisher's half of the exchange
//! signature      64 bytes, of the kind, the key, the nonce, the extra and the payload
//! ```
//!
//! An answer signs the nonce of its question, so an old answer is no answer to a new question.

use ring::rand::{SecureRandom as _, SystemRandom};

use super::identity::{Checked, Identity};
use crate::bytes::{MessageReader, put_varint};
use crate::error::Error;

/// The version of the layout.
const LAYOUT: u8 = 1;

const MAGIC: [u8; 4] = [b'S', b'K', b'P', LAYOUT];

/// Bytes of a signature.
const SIGNATURE_BYTES: usize = 64;

/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 32;

/// The longest certificate that is checked; ours have less than 700 bytes.
const MAX_CERTIFICATE_BYTES: usize = 4096;

/// The kind of a message. Each signs other bytes, so that none passes for another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A question to a publisher or a follower.
    Question = 1,
    /// An answer.
    Answer = 2,
}

/// A message whose maker is proved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement<'a> {
    pub(crate) kind: Kind,
    /// Key of the message on the plane.
    pub(crate) key: &'a str,
    /// Nonce of the question that an answer belongs to; empty in a question.
    pub(crate) nonce: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl Statement<'_> {
    /// Returns the bytes that are signed. Each field has its length in front.
    fn signed(&self, extra: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.key.len() + self.payload.len());
        out.extend_from_slice(b"skopos live plane 1\0");
        out.push(self.kind as u8);
        for field in [self.key.as_bytes(), self.nonce, extra, self.payload] {
            put_varint(&mut out, field.len() as u64);
            out.extend_from_slice(field);
        }
        out
    }

    /// Returns the proof that `identity` makes this statement.
    pub(crate) fn prove(&self, identity: &Identity, extra: &[u8]) -> Vec<u8> {
        let (certificate, signature) = identity.sign(&self.signed(extra));
        let mut out = MAGIC.to_vec();
        for field in [&*certificate, extra] {
            put_varint(&mut out, field.len() as u64);
            out.extend_from_slice(field);
        }
        out.extend_from_slice(&signature);
        out
    }

    /// Checks a proof. Returns the certificate of the maker, and the extra bytes.
    ///
    /// # Errors
    /// The proof is damaged, or is not one of this statement.
    pub(crate) fn check<'p>(
        &self,
        identity: &Identity,
        proof: &'p [u8],
    ) -> Result<(Checked, &'p [u8]), Error> {
        let mut reader = MessageReader::new(proof);
        reader.magic(MAGIC)?;
        let length = reader.count(1)?;
        if length > MAX_CERTIFICATE_BYTES {
            return Err(Error::Number);
        }
        let certificate = reader.take(length)?;
        let length = reader.count(1)?;
        let extra = reader.take(length)?;
        let signature = reader.take(SIGNATURE_BYTES)?;
        reader.end()?;
        let checked = identity.check(certificate).map_err(Error::Proof)?;
        match checked.has_signed(&self.signed(extra), signature) {
            true => Ok((checked, extra)),
            false => Err(Error::Proof("the signature is not one of this message".to_owned())),
        }
    }
}

/// Draws a nonce.
pub(crate) fn nonce() -> Result<[u8; NONCE_BYTES], Error> {
    let mut nonce = [0; NONCE_BYTES];
    let drawn = SystemRandom::new().fill(&mut nonce);
    drawn.map_err(|_| Error::Plane("the system has no random numbers".to_owned()))?;
    Ok(nonce)
}
