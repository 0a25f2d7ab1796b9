//! The exchange with one device: makes messages of requests, and responses of messages. It has no socket and no clock.

use std::time::Duration;

use super::ber;
use super::pdu::{Request, Response};
use super::refused::Refused;
use super::secret::Secret;
use super::settings::{Identity, User};
use super::usm::{Taken, UserSession};

/// Version 2c, in messages.
const VERSION_2C: i32 = 1;

/// The exchange with a device.
#[derive(Debug)]
pub(super) struct Session {
    security: Security,
    /// The number of the request that waits. An answer takes it away, so a repeated one is refused.
    waiting: Option<i32>,
}

#[derive(Debug)]
enum Security {
    Community(Secret),
    User(Box<UserSession>),
}

impl Session {
    /// Makes a session. `random` begins the salts of version 3.
    pub(super) fn new(identity: Identity, random: u64) -> Self {
        let security = match identity {
            Identity::Community(secret) => Security::Community(secret),
            Identity::User(user) => Security::User(Box::new(UserSession::new(user, random))),
        };
        Self { security, waiting: None }
    }

    /// Returns the number of starts of a device with version 3.
    pub(super) fn boots(&self) -> Option<u32> {
        match &self.security {
            Security::Community(_) => None,
            Security::User(user) => user.boots(),
        }
    }

    /// Notes that the device does not answer.
    pub(super) fn note_silence(&mut self) {
        self.waiting = None;
        if let Security::User(user) = &mut self.security {
            user.forget_engine();
        }
    }

    /// Returns the message with a request. `id` is a random number that is not negative.
    pub(super) fn write(&mut self, id: i32, request: &Request, now: Duration) -> Vec<u8> {
        self.waiting = Some(id);
        match &mut self.security {
            Security::User(user) => user.write(id, request, now),
            Security::Community(secret) => {
                let mut out = Vec::new();
                ber::put_with(&mut out, ber::SEQUENCE, |message| {
                    ber::put_i32(message, VERSION_2C);
                    ber::put(message, ber::OCTETS, secret.bytes());
                    request.write(id, message);
                });
                out
            }
        }
    }

    /// Takes a datagram.
    ///
    /// # Errors
    /// It is not the answer.
    pub(super) fn take(&mut self, bytes: &[u8], now: Duration) -> Result<Taken, Refused> {
        let id = self.waiting.ok_or(Refused::WrongNumber)?;
        let taken = match &mut self.security {
            Security::User(user) => user.take(id, bytes, now)?,
            Security::Community(secret) => take_community(secret, id, bytes)?,
        };
        self.waiting = None;
        Ok(taken)
    }
}

fn take_community(secret: &Secret, id: i32, bytes: &[u8]) -> Result<Taken, Refused> {
    let read = || {
        let mut message = ber::reader(ber::expect(&mut ber::reader(bytes), ber::SEQUENCE)?);
        let version = ber::expect_i32(&mut message)?;
        let community = ber::expect(&mut message, ber::OCTETS)?;
        let is_own = version == VERSION_2C && community == secret.bytes();
        Response::read(&mut message).map(|response| (is_own, response))
    };
    let (is_own, response) = read().map_err(|_| Refused::Malformed)?;
    match response {
        _ if !is_own => Err(Refused::Forged),
        Response { is_report: true, .. } => Err(Refused::Report),
        response if response.id != id => Err(Refused::WrongNumber),
        response => Ok(Taken::Response(response)),
    }
}

/// Reads any bytes as the answer to a request, as a poller without an engine and one with an engine do. It is for fuzzing.
///
/// # Errors
/// The bytes are not such an answer.
pub fn read_response(bytes: &[u8]) -> Result<(), Refused> {
    let secret = Secret::new(b"public");
    let id = bytes.first().map_or(0, |byte| i32::from(*byte));
    let plain = take_community(&secret, id, bytes).map(|_| ());
    let passphrase = Secret::new(b"a passphrase");
    let user = User::new("user", super::Auth::Sha256, &passphrase, Some(&passphrase));
    let mut session = UserSession::new(user, 0);
    let versioned = session.take(id, bytes, Duration::ZERO).map(|_| ());
    plain.or(versioned)
}
