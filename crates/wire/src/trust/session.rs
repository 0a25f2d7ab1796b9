//! Sessions between one publisher and one follower: an agreed key, with which the publisher tags its batches.
//!
//! The follower sends its half of the exchange (X25519) as the nonce of its question, and the publisher its own half with
//! the answer. Both are signed, so nobody else knows the key.
//!
//! Nodes of the site see the questions of others, and could ask them again. So each half of a follower counts once, and the
//! name of a session depends on both halves: whoever repeats a question gets nothing, and takes no place.
//!
//! A batch carries a tag for each follower: 8 bytes that name the session, and 16 bytes of HMAC-SHA-256 over the digest of
//! the key and the batch. The digest is computed once for all followers.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::digest::{self, Digest};
use ring::hmac;
use ring::rand::SystemRandom;
use skopos_access::Names;
use skopos_model::unpoisoned;

use super::proof::NONCE_BYTES;
use crate::error::Error;

/// The most followers of a publisher that get tags: hubs, and nodes that mirror it. Each tag costs a microsecond.
const MAX_SESSIONS: usize = 64;

/// Time for which a node keeps its session: a publisher does not notice that a node has stopped following it. A node that
/// still follows then asks again, so all nodes of a large site take turns, each for many times the time of a snapshot.
const SESSION_LEASE: Duration = Duration::from_secs(600);

/// The most of them of one program name: a hub that restarts leaves its old session behind.
const MAX_SESSIONS_OF_A_NAME: usize = 4;

/// Halves of one follower that are remembered: it sends one whenever it needs a snapshot.
const MAX_SEEN: usize = 256;

/// Halves of all followers that are remembered.
const MAX_SEEN_OF_ALL: usize = 128 * MAX_SEEN;

const ID_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
const ENTRY_BYTES: usize = ID_BYTES + TAG_BYTES;

/// The most bytes that the tags of a batch have: one for each follower that can have one.
pub(crate) const MAX_TAGS_BYTES: usize = MAX_SESSIONS * ENTRY_BYTES;

/// One half of an exchange of keys, before the other half is there.
pub(crate) struct Exchange {
    private: EphemeralPrivateKey,
    pub(crate) public: [u8; NONCE_BYTES],
}

impl Exchange {
    pub(crate) fn begin() -> Result<Self, Error> {
        let failed = |_| Error::Plane("no key can be made".to_owned());
        let private =
            EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).map_err(failed)?;
        let mut public = [0; NONCE_BYTES];
        public.copy_from_slice(private.compute_public_key().map_err(failed)?.as_ref());
        Ok(Self { private, public })
    }

    /// Returns the session with the other half. `follower` is the public half of the follower, on both sides.
    pub(crate) fn agree(self, other: &[u8], follower: &[u8]) -> Result<Session, Error> {
        let failed = |_| Error::Proof("the exchange of keys failed".to_owned());
        let is_follower = self.public.as_slice() == follower;
        let publisher = if is_follower { other } else { &self.public };
        let both = digest::digest(&digest::SHA256, &[follower, publisher].concat());
        let other = UnparsedPublicKey::new(&X25519, other);
        let key = agree_ephemeral(self.private, &other, |shared| {
            let mut context = digest::Context::new(&digest::SHA256);
            context.update(b"skopos live plane session 1\0");
            context.update(shared);
            context.update(follower);
            hmac::Key::new(hmac::HMAC_SHA256, context.finish().as_ref())
        });
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&both.as_ref()[..ID_BYTES]);
        Ok(Session { id, key: key.map_err(failed)? })
    }
}

/// A key that one publisher and one follower share.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    id: [u8; ID_BYTES],
    key: hmac::Key,
}

/// The meaning of a batch's tags for a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tagged {
    /// The publisher made the batch.
    Genuine,
    /// Somebody else did.
    Forged,
    /// There is no tag for this follower.
    Absent,
}

impl Session {
    /// Compares the tags of a batch that came with this key.
    pub(crate) fn check(&self, key: &str, batch: &[u8], tags: &[u8]) -> Tagged {
        let entries = tags.chunks_exact(ENTRY_BYTES).take(MAX_SESSIONS);
        let mut own = entries.filter(|entry| entry.starts_with(&self.id));
        let Some(entry) = own.next() else { return Tagged::Absent };
        let tag = hmac::sign(&self.key, digest_of(key, batch).as_ref());
        let (own, given) = (&tag.as_ref()[..TAG_BYTES], &entry[ID_BYTES..]);
        // All bytes are compared, whatever the first ones are.
        let difference = own.iter().zip(given).fold(0, |all, (a, b)| all | (a ^ b));
        if difference == 0 { Tagged::Genuine } else { Tagged::Forged }
    }
}

fn digest_of(key: &str, batch: &[u8]) -> Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&(key.len() as u64).to_le_bytes());
    context.update(key.as_bytes());
    context.update(batch);
    context.finish()
}

/// The sessions of one publisher.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// The oldest first.
    all: Mutex<VecDeque<Agreed>>,
    /// The halves that followers have sent, the oldest first.
    seen: Mutex<VecDeque<(String, [u8; NONCE_BYTES])>>,
}

/// A session with its follower.
#[derive(Debug)]
struct Agreed {
    follower: Names,
    at: Instant,
    session: Session,
}

impl Sessions {
    /// Returns true if this follower has not sent this half before. It is noted.
    pub(crate) fn is_first(&self, follower: &str, half: &[u8]) -> bool {
        let Ok(half) = <[u8; NONCE_BYTES]>::try_from(half) else { return false };
        let mut seen = unpoisoned(self.seen.lock());
        if seen.iter().any(|(name, known)| name == follower && *known == half) {
            return false;
        }
        // A follower makes room for itself alone.
        let of_it = seen.iter().filter(|(name, _)| name == follower).count();
        if of_it >= MAX_SEEN
            && let Some(at) = seen.iter().position(|(name, _)| name == follower)
        {
            seen.remove(at);
        }
        if seen.len() >= MAX_SEEN_OF_ALL {
            seen.pop_front();
        }
        seen.push_back((follower.to_owned(), half));
        true
    }

    /// Adds the session of a follower that asks `now`. Returns false if there is no place for it. If all are taken, an
    /// older session of the follower gives way. Else a hub takes the place of the oldest node, and a node that of a node
    /// whose lease is over: a node whose session is gone asks again, and must not push out the next one. A hub gives way
    /// to another hub alone, when its lease is over.
    pub(crate) fn add(&self, follower: &Names, session: Session, now: Instant) -> bool {
        let mut all = unpoisoned(self.all.lock());
        let is_same = |one: &Agreed| one.follower.node == follower.node;
        let of_it = all.iter().filter(|one| is_same(one)).count();
        if of_it >= MAX_SESSIONS_OF_A_NAME || all.len() >= MAX_SESSIONS {
            let is_over = |one: &Agreed| now.saturating_duration_since(one.at) >= SESSION_LEASE;
            let is_node = |one: &Agreed| !one.follower.is_hub && (follower.is_hub || is_over(one));
            let is_hub = |one: &Agreed| follower.is_hub && is_over(one);
            let own = all.iter().position(is_same);
            let at = own.or_else(|| all.iter().position(is_node));
            let Some(at) = at.or_else(|| all.iter().position(is_hub)) else { return false };
            all.remove(at);
        }
        all.push_back(Agreed { follower: follower.clone(), at: now, session });
        true
    }

    /// Returns the tags of a batch that is sent with this key.
    pub(crate) fn tags(&self, key: &str, batch: &[u8]) -> Vec<u8> {
        let all = unpoisoned(self.all.lock());
        let mut tags = Vec::with_capacity(all.len() * ENTRY_BYTES);
        if all.is_empty() {
            return tags;
        }
        let digest = digest_of(key, batch);
        for Agreed { session, .. } in all.iter() {
            tags.extend_from_slice(&session.id);
            let tag = hmac::sign(&session.key, digest.as_ref());
            tags.extend_from_slice(&tag.as_ref()[..TAG_BYTES]);
        }
        tags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(node: &str, is_hub: bool) -> Names {
        Names { site: "s".to_owned(), node: node.to_owned(), is_hub }
    }

    fn agreed() -> (Session, Session) {
        let (follower, publisher) = (Exchange::begin(), Exchange::begin());
        let (follower, publisher) = (follower.expect("a key"), publisher.expect("a key"));
        let (theirs, ours) = (follower.public, publisher.public);
        let there = publisher.agree(&theirs, &theirs).expect("agreed");
        (follower.agree(&ours, &theirs).expect("agreed"), there)
    }

    #[test]
    fn a_follower_knows_the_batches_of_its_publisher() {
        let sessions = Sessions::default();
        assert!(sessions.tags("k", b"batch").is_empty());
        let (first, there) = agreed();
        sessions.add(&names("hub", true), there, Instant::now());
        let (second, there) = agreed();
        sessions.add(&names("n02", false), there, Instant::now());
        let tags = sessions.tags("k", b"batch");
        for session in [&first, &second] {
            assert_eq!(session.check("k", b"batch", &tags), Tagged::Genuine);
            assert_eq!(session.check("k", b"batcH", &tags), Tagged::Forged);
            assert_eq!(session.check("other", b"batch", &tags), Tagged::Forged);
            assert_eq!(session.check("k", b"batch", &[]), Tagged::Absent);
            assert_eq!(session.check("k", b"batch", &tags[..ENTRY_BYTES - 1]), Tagged::Absent);
        }
        let (stranger, _) = agreed();
        assert_eq!(stranger.check("k", b"batch", &tags), Tagged::Absent);
        let mut swapped = tags.clone();
        swapped.copy_within(ENTRY_BYTES + ID_BYTES.., ID_BYTES);
        assert_eq!(first.check("k", b"batch", &swapped), Tagged::Forged, "the tag of another");
    }

    #[test]
    fn a_question_counts_once_and_a_repeated_one_names_another_session() {
        let sessions = Sessions::default();
        let (follower, publisher) = (Exchange::begin(), Exchange::begin());
        let (follower, publisher) = (follower.expect("a key"), publisher.expect("a key"));
        let (theirs, ours) = (follower.public, publisher.public);
        assert!(sessions.is_first("hub", &theirs));
        assert!(!sessions.is_first("hub", &theirs), "it is asked again");
        assert!(sessions.is_first("n02", &theirs), "another one takes nothing from the hub");
        assert!(!sessions.is_first("hub", b"short"));
        let again = Exchange::begin().expect("a key").agree(&theirs, &theirs).expect("agreed");
        sessions.add(&names("n02", false), again, Instant::now());
        sessions.add(
            &names("hub", true),
            publisher.agree(&theirs, &theirs).expect("agreed"),
            Instant::now(),
        );
        let hub = follower.agree(&ours, &theirs).expect("agreed");
        let tags = sessions.tags("k", b"batch");
        assert_eq!(hub.check("k", b"batch", &tags), Tagged::Genuine);
        for number in 0..2 * MAX_SEEN as u64 {
            let mut half = [0; NONCE_BYTES];
            half[..8].copy_from_slice(&number.to_le_bytes());
            assert!(sessions.is_first("n02", &half));
        }
        assert!(!sessions.is_first("hub", &theirs), "others do not push it out");
    }

    #[test]
    fn one_follower_cannot_take_the_places_of_all() {
        let sessions = Sessions::default();
        let (hub, there) = agreed();
        sessions.add(&names("hub", true), there, Instant::now());
        for _ in 0..2 * MAX_SESSIONS {
            sessions.add(&names("n02", false), agreed().1, Instant::now());
        }
        let tags = sessions.tags("k", b"batch");
        assert_eq!(tags.len(), (1 + MAX_SESSIONS_OF_A_NAME) * ENTRY_BYTES);
        assert_eq!(hub.check("k", b"batch", &tags), Tagged::Genuine);
    }

    #[test]
    fn nodes_that_follow_do_not_take_the_places_of_hubs_or_of_each_other() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let (hub, there) = agreed();
        assert!(sessions.add(&names("hub", true), there, now));
        let (first, there) = agreed();
        assert!(sessions.add(&names("n00", false), there, now));
        let node = |n: usize, at| sessions.add(&names(&format!("n{n:02}"), false), agreed().1, at);
        let added = (1..=2 * MAX_SESSIONS).filter(|n| node(*n, now)).count();
        assert_eq!(added, MAX_SESSIONS - 2, "the rest has no place");
        let is_there = |session: &Session| {
            session.check("k", b"batch", &sessions.tags("k", b"batch")) == Tagged::Genuine
        };
        assert!(is_there(&hub) && is_there(&first));
        let (second, there) = agreed();
        assert!(sessions.add(&names("hub2", true), there, now), "another hub");
        assert!(
            is_there(&hub) && is_there(&second) && !is_there(&first),
            "the oldest node gave way"
        );
        assert!(!node(900, now));
        assert!(node(20, now), "a node takes its own place again");
        let later = now + SESSION_LEASE;
        let added = (901..1100).filter(|n| node(*n, later)).count();
        assert_eq!(added, MAX_SESSIONS - 2, "old sessions of nodes give way");
        assert!(is_there(&hub) && is_there(&second));
        let hubs = (0..2 * MAX_SESSIONS)
            .filter(|n| sessions.add(&names(&format!("h{n}"), true), agreed().1, later));
        assert_eq!(hubs.count(), MAX_SESSIONS, "the two first hubs' leases are over");
    }
}
