//! The rules of proofs: sign what this program asks and answers, and check what others ask and answer.

use std::sync::Arc;

use skopos_access::{Action, Caller, Names, may};
use zenoh::query::Query;
use zenoh::sample::Sample;

use super::identity::Identity;
use super::proof::{Kind, Statement, nonce};
use crate::error::Error;

/// The rules of one session about proofs. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ProofRules {
    identity: Option<Arc<Identity>>,
    /// True if messages without a proof are refused: others than this user can reach the session.
    demands: bool,
    /// The caller of messages that need no proof.
    unproved: Caller,
}

/// A question that this program asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentQuestion {
    pub(crate) nonce: Vec<u8>,
    /// The proof, to be attached.
    pub(crate) proof: Option<Vec<u8>>,
}

/// A question that somebody asks this program.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) caller: Caller,
    /// Public key of the certificate that it was signed with.
    pub(crate) key: Option<[u8; 32]>,
    pub(crate) nonce: Vec<u8>,
}

impl ProofRules {
    /// Makes the rules of a session that only this user can reach, or that `is_reached` by others. Without an identity
    /// others are not told apart.
    pub(crate) fn new(identity: Option<Arc<Identity>>, is_reached: bool) -> Self {
        let demands = is_reached && identity.is_some();
        let unproved = match is_reached {
            true => Caller::Anybody,
            false => Caller::Owner,
        };
        Self { identity, demands, unproved }
    }

    /// Returns true if messages without a proof are refused.
    pub(crate) fn demands(&self) -> bool {
        self.demands
    }

    /// Returns the identity, if there is one.
    pub(crate) fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_ref()
    }

    /// Signs a question with a fresh nonce.
    pub(crate) fn ask(&self, key: &str, payload: &[u8]) -> Result<SentQuestion, Error> {
        match &self.identity {
            Some(_) => self.ask_with(key, payload, &nonce()?),
            None => Ok(SentQuestion::default()),
        }
    }

    /// Signs a question with this nonce.
    pub(crate) fn ask_with(
        &self,
        key: &str,
        payload: &[u8],
        nonce: &[u8],
    ) -> Result<SentQuestion, Error> {
        let Some(identity) = &self.identity else { return Ok(SentQuestion::default()) };
        let statement = Statement { kind: Kind::Question, key, nonce: &[], payload };
        Ok(SentQuestion { nonce: nonce.to_vec(), proof: Some(statement.prove(identity, nonce)) })
    }

    /// Returns who asks a question, if that caller may do `action`.
    ///
    /// # Errors
    /// The question has no valid proof and needs one; the policy refuses it.
    pub(crate) fn receive(&self, query: &Query, action: Action<'_>) -> Result<Received, Error> {
        let proof = query.attachment().map(|bytes| bytes.to_bytes());
        let received = match (&self.identity, proof) {
            (Some(identity), Some(proof)) => {
                let payload = query.payload().map(|bytes| bytes.to_bytes()).unwrap_or_default();
                let key = query.key_expr().as_str();
                let statement =
                    Statement { kind: Kind::Question, key, nonce: &[], payload: &payload };
                let (checked, nonce) = statement.check(identity, &proof)?;
                let key = checked.public_key();
                Received { caller: Caller::Node(checked.names), key, nonce: nonce.to_vec() }
            }
            _ if self.demands => return Err(Error::Proof("it has no signature".to_owned())),
            _ => Received { caller: self.unproved.clone(), key: None, nonce: Vec::new() },
        };
        may(&received.caller, action).map_err(|denied| Error::Refused(denied.to_string()))?;
        Ok(received)
    }

    /// Signs an answer; `None` without an identity.
    pub(crate) fn answer(
        &self,
        received: &Received,
        key: &str,
        payload: &[u8],
        extra: &[u8],
    ) -> Option<Vec<u8>> {
        let nonce = &received.nonce;
        let statement = Statement { kind: Kind::Answer, key, nonce, payload };
        Some(statement.prove(self.identity.as_ref()?, extra))
    }

    /// Checks that a caller who may do `action` gave an answer, and returns the extra bytes of its proof.
    ///
    /// # Errors
    /// The answer has no valid proof and needs one; the policy refuses it.
    pub(crate) fn check(
        &self,
        nonce: &[u8],
        answer: &Message,
        action: Action<'_>,
    ) -> Result<Vec<u8>, Error> {
        let Some(identity) = self.identity.as_ref().filter(|_| self.demands) else {
            return Ok(Vec::new());
        };
        let Message { key, payload, proof } = answer;
        let proof = proof.as_ref().ok_or_else(|| Error::Proof("it has no signature".to_owned()))?;
        let statement = Statement { kind: Kind::Answer, key, nonce, payload };
        let (checked, extra) = statement.check(identity, proof)?;
        may(&Caller::Node(checked.names), action)
            .map_err(|denied| Error::Refused(denied.to_string()))?;
        Ok(extra.to_vec())
    }

    /// Returns the names of this program, if it has an identity.
    pub(crate) fn names(&self) -> Option<Names> {
        self.identity.as_ref().map(|identity| identity.names())
    }
}

/// A message as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) key: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) proof: Option<Vec<u8>>,
}

impl From<&Sample> for Message {
    fn from(sample: &Sample) -> Self {
        Self {
            key: sample.key_expr().as_str().to_owned(),
            payload: sample.payload().to_bytes().into_owned(),
            proof: sample.attachment().map(|bytes| bytes.to_bytes().into_owned()),
        }
    }
}
