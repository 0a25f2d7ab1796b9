//! The user-based security model of version 3: messages with a tag, a time and, if set, a secret content.
//!
//! # Invariants
//! - A message without a tag is believed for one thing: the id of an engine that is not known yet.
//! - Nothing of a message with a tag is used before the tag is verified.
//! - A message counts only if it has the number of the request that waits, and is in the time window.

pub(super) mod keys;
mod message;

use std::time::Duration;

use super::ber;
use super::pdu::{Request, Response};
use super::refused::Refused;
use super::settings::User;
use keys::{BLOCK_BYTES, Cipher, TagKey};
use message::{ENGINE_BYTES, Frame, Parameters};

/// The most seconds that a message may be old (RFC 3414, section 3.2).
const WINDOW_SECONDS: u32 = 150;

/// The number of starts at which an engine can no longer be used (RFC 3414, section 2.2.2).
const LAST_BOOT: u32 = i32::MAX as u32;

/// The id of the engine is not known to the device; the time is not in its window (RFC 3414, section 5).
const UNKNOWN_ENGINE: &[u32] = &[1, 3, 6, 1, 6, 3, 15, 1, 1, 4];
const NOT_IN_WINDOW: &[u32] = &[1, 3, 6, 1, 6, 3, 15, 1, 1, 2];

/// The exchange with a device as a user.
#[derive(Debug)]
pub(super) struct UserSession {
    user: User,
    engine: Option<Engine>,
    /// The number of the next salt. No salt comes twice.
    salt: u64,
}

#[derive(Debug)]
struct Engine {
    id: Vec<u8>,
    tag_key: TagKey,
    cipher: Option<Cipher>,
    clock: Option<Clock>,
}

/// The clock of an engine, as of its last verified message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    boots: u32,
    time: u32,
    at: Duration,
}

impl Clock {
    fn time(&self, now: Duration) -> u32 {
        let passed = now.saturating_sub(self.at).as_secs();
        let time = u64::from(self.time).saturating_add(passed).min(u64::from(LAST_BOOT));
        time as u32
    }
}

/// A verified message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The response to the request.
    Response(Response),
    /// The engine or its clock is known now; the request must be sent again.
    Again,
}

impl UserSession {
    /// Makes a session with a device that is not known yet. `salt` is random.
    pub(super) fn new(user: User, salt: u64) -> Self {
        Self { user, engine: None, salt }
    }

    /// Returns the number of starts of the device; `None` before its first verified message.
    pub(super) fn boots(&self) -> Option<u32> {
        Some(self.engine.as_ref()?.clock?.boots)
    }

    /// Discards the engine, so that it is discovered anew: the device may have been replaced.
    pub(super) fn forget_engine(&mut self) {
        self.engine = None;
    }

    /// Returns the message with a request; the message of discovery, or one that asks for the clock, if the device is not
    /// known well enough.
    pub(super) fn write(&mut self, id: i32, request: &Request, now: Duration) -> Vec<u8> {
        let nothing = Request { oids: Vec::new(), repetitions: None };
        let Some(engine) = &self.engine else {
            return message::write(id, &Parameters::default(), &scoped(&[], id, &nothing));
        };
        let mut parameters = Parameters {
            engine: &engine.id,
            user: self.user.name.as_bytes(),
            tag_bytes: engine.tag_key.bytes,
            ..Parameters::default()
        };
        let Some(clock) = engine.clock else {
            let message = message::write(id, &parameters, &scoped(&engine.id, id, &nothing));
            return tagged(message, &engine.tag_key);
        };
        (parameters.boots, parameters.time) = (clock.boots, clock.time(now));
        let mut content = scoped(&engine.id, id, request);
        let salt = self.salt.to_be_bytes();
        if let Some(cipher) = &engine.cipher {
            self.salt = self.salt.wrapping_add(1);
            cipher.encrypt(vector(parameters.boots, parameters.time, salt), &mut content);
            parameters.salt = &salt;
        }
        tagged(message::write(id, &parameters, &content), &engine.tag_key)
    }

    /// Takes a message that came while the request with number `id` waits.
    ///
    /// # Errors
    /// The message is not the answer, or cannot be believed; it changed nothing.
    pub(super) fn take(&mut self, id: i32, bytes: &[u8], now: Duration) -> Result<Taken, Refused> {
        let frame = Frame::read(bytes).map_err(|_| Refused::Malformed)?;
        if frame.id != id {
            return Err(Refused::WrongNumber);
        }
        if !frame.is_authenticated {
            return self.take_discovery(&frame);
        }
        let engine = self.engine.as_mut().ok_or(Refused::Forged)?;
        let is_own = frame.engine == engine.id && frame.user == self.user.name.as_bytes();
        if !is_own || !engine.tag_key.is_right(&frame.without_tag(bytes), frame.tag) {
            return Err(Refused::Forged);
        }
        let was_known = engine.clock.is_some();
        let before = engine.clock;
        engine.note_time(frame.boots, frame.time, now)?;
        if !was_known {
            return Ok(Taken::Again);
        }
        let response = engine.content(&frame)?;
        if response.is_report {
            let is_late =
                response.bindings.iter().any(|(oid, _)| oid.below(NOT_IN_WINDOW).is_some());
            // Sending again is of use only if the clock is another one now.
            return if is_late && before != engine.clock {
                Ok(Taken::Again)
            } else {
                Err(Refused::Report)
            };
        }
        if response.id != id {
            return Err(Refused::WrongNumber);
        }
        if engine.cipher.is_some() && !frame.is_private {
            return Err(Refused::Forged);
        }
        Ok(Taken::Response(response))
    }

    fn take_discovery(&mut self, frame: &Frame<'_>) -> Result<Taken, Refused> {
        if self.engine.is_some() || frame.is_private {
            return Err(Refused::Unverified);
        }
        let report = read_scoped(frame.content)?;
        let is_answer = report.bindings.iter().any(|(oid, _)| oid.below(UNKNOWN_ENGINE).is_some());
        if !report.is_report || !is_answer || !ENGINE_BYTES.contains(&frame.engine.len()) {
            return Err(Refused::Unverified);
        }
        self.engine = Some(Engine {
            id: frame.engine.to_vec(),
            tag_key: self.user.auth_key.tag_key(frame.engine),
            cipher: self.user.privacy_key.as_ref().map(|key| key.cipher(frame.engine)),
            clock: None,
        });
        Ok(Taken::Again)
    }
}

impl Engine {
    /// Notes the time of a verified message (RFC 3414, section 3.2, step 7 b).
    fn note_time(&mut self, boots: u32, time: u32, now: Duration) -> Result<(), Refused> {
        let Some(clock) = &mut self.clock else {
            self.clock = Some(Clock { boots, time, at: now });
            return Ok(());
        };
        if (boots, time) > (clock.boots, clock.time) {
            *clock = Clock { boots, time, at: now };
        }
        let is_old = boots < clock.boots
            || time.saturating_add(WINDOW_SECONDS) < clock.time(now)
            || clock.boots == LAST_BOOT;
        if is_old { Err(Refused::Old) } else { Ok(()) }
    }

    fn content(&self, frame: &Frame<'_>) -> Result<Response, Refused> {
        if !frame.is_private {
            return read_scoped(frame.content);
        }
        let cipher = self.cipher.as_ref().ok_or(Refused::Forged)?;
        let salt: [u8; 8] = frame.salt.try_into().map_err(|_| Refused::Malformed)?;
        let mut content = frame.content.to_vec();
        cipher.decrypt(vector(frame.boots, frame.time, salt), &mut content);
        read_scoped(&content)
    }
}

/// The vector with which the cipher begins (RFC 3826, section 3.1.2.1).
fn vector(boots: u32, time: u32, salt: [u8; 8]) -> [u8; BLOCK_BYTES] {
    let number = u128::from(boots) << 96 | u128::from(time) << 64;
    (number | u128::from(u64::from_be_bytes(salt))).to_be_bytes()
}

fn scoped(engine: &[u8], id: i32, request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    ber::put_with(&mut out, ber::SEQUENCE, |scoped| {
        ber::put(scoped, ber::OCTETS, engine);
        ber::put(scoped, ber::OCTETS, &[]);
        request.write(id, scoped);
    });
    out
}

fn read_scoped(bytes: &[u8]) -> Result<Response, Refused> {
    let read = || {
        let mut scoped = ber::reader(ber::expect(&mut ber::reader(bytes), ber::SEQUENCE)?);
        ber::expect(&mut scoped, ber::OCTETS)?;
        ber::expect(&mut scoped, ber::OCTETS)?;
        Response::read(&mut scoped)
    };
    read().map_err(|_| Refused::Malformed)
}

fn tagged(mut message: Vec<u8>, key: &TagKey) -> Vec<u8> {
    let tag = key.tag(&message);
    // The message is our own, so it can be read.
    if let Ok(at) = Frame::read(&message).map(|frame| frame.tag_at)
        && let Some(place) = message.get_mut(at..at + key.bytes)
    {
        place.copy_from_slice(&tag[..key.bytes]);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::super::auth::Auth;
    use super::super::secret::Secret;
    use super::*;

    const ENGINE: &[u8] = b"an engine";

    fn user(passphrase: &str) -> User {
        User::new("user", Auth::Sha256, &Secret::new(passphrase.as_bytes()), None)
    }

    /// A message of the device: a response, or a report about its engine. Without a passphrase it has no tag.
    fn message(id: i32, clock: (u32, u32), passphrase: Option<&str>, is_report: bool) -> Vec<u8> {
        let request = Request { oids: vec![UNKNOWN_ENGINE.into()], repetitions: None };
        let mut content = scoped(ENGINE, id, &request);
        let at = content.iter().position(|byte| *byte == 0xa0).expect("a request");
        content[at] = if is_report { 0xa8 } else { 0xa2 };
        let key = passphrase.map(|text| user(text).auth_key.tag_key(ENGINE));
        let parameters = Parameters {
            engine: ENGINE,
            boots: clock.0,
            time: clock.1,
            user: b"user",
            tag_bytes: key.as_ref().map_or(0, |key| key.bytes),
            salt: &[],
        };
        let message = message::write(id, &parameters, &content);
        key.map_or(message.clone(), |key| tagged(message, &key))
    }

    #[test]
    fn only_verified_messages_in_the_window_are_believed() {
        let (right, now) = (Some("a passphrase"), Duration::from_secs(1000));
        let mut session = UserSession::new(user("a passphrase"), 0);
        // A message with a tag says nothing before the engine is known, and neither does a response without one.
        assert_eq!(session.take(1, &message(1, (1, 500), right, false), now), Err(Refused::Forged));
        assert_eq!(
            session.take(1, &message(1, (1, 500), None, false), now),
            Err(Refused::Unverified)
        );
        assert_eq!(session.take(1, &message(1, (9, 9), None, true), now), Ok(Taken::Again));
        assert_eq!(session.boots(), None, "the clock of a report without a tag is not believed");
        // The engine is known: further reports without a tag change nothing.
        assert_eq!(session.take(2, &message(2, (9, 9), None, true), now), Err(Refused::Unverified));
        let forged = message(2, (9, 9), Some("another passphrase"), false);
        assert_eq!(session.take(2, &forged, now), Err(Refused::Forged));
        assert_eq!(session.take(2, &message(2, (3, 500), right, true), now), Ok(Taken::Again));
        assert_eq!(session.boots(), Some(3));
        let good = message(3, (3, 500), right, false);
        assert!(matches!(session.take(3, &good, now), Ok(Taken::Response(_))));
        // A replay has the number of another request, and at last an old time.
        assert_eq!(session.take(4, &good, now), Err(Refused::WrongNumber));
        let later = now + Duration::from_secs(151);
        assert_eq!(session.take(3, &good, later), Err(Refused::Old));
        assert_eq!(session.take(3, &message(3, (2, 9000), right, false), now), Err(Refused::Old));
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 1;
            assert!(session.take(3, &damaged, now).is_err(), "{at}");
        }
    }
}
