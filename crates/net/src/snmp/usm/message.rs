//! The frame of a message of version 3 (RFC 3412, section 6, and RFC 3414, section 2.4).

use super::super::ber;
use super::keys::MAX_TAG_BYTES;
use crate::Error;

/// Version 3, in messages.
const VERSION: i32 = 3;
/// The security model with users.
const USER_MODEL: i32 = 3;

const AUTHENTICATED: u8 = 1;
const PRIVATE: u8 = 2;
const REPORTABLE: u8 = 4;

/// The most bytes of a response that the poller announces. It is below the buffer of its socket.
const MAX_RESPONSE_BYTES: i32 = 16_384;

/// Bytes of the id of an engine (RFC 3411, section 5).
pub(super) const ENGINE_BYTES: std::ops::RangeInclusive<usize> = 5..=32;

/// A message from a device, not verified.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) id: i32,
    pub(super) is_authenticated: bool,
    pub(super) is_private: bool,
    pub(super) engine: &'a [u8],
    pub(super) boots: u32,
    pub(super) time: u32,
    pub(super) user: &'a [u8],
    pub(super) tag: &'a [u8],
    pub(super) salt: &'a [u8],
    /// The place of the tag in the message.
    pub(super) tag_at: usize,
    /// The scoped response; encrypted if the message is private.
    pub(super) content: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not a message of version 3 with the user-based security model.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut message = ber::reader(ber::expect(&mut ber::reader(bytes), ber::SEQUENCE)?);
        let version = ber::expect_i32(&mut message)?;
        if version != VERSION {
            return Err(ber::malformed(format!("it has version {version} instead of 3")));
        }
        let mut head = ber::reader(ber::expect(&mut message, ber::SEQUENCE)?);
        let id = ber::expect_i32(&mut head)?;
        ber::expect_i32(&mut head)?;
        let [flags] = ber::expect(&mut head, ber::OCTETS)? else {
            return Err(ber::malformed("its flags are not one byte"));
        };
        if ber::expect_i32(&mut head)? != USER_MODEL {
            return Err(ber::malformed("its security model is not that with users"));
        }
        let parameters = ber::expect(&mut message, ber::OCTETS)?;
        let mut user = ber::reader(ber::expect(&mut ber::reader(parameters), ber::SEQUENCE)?);
        let engine = ber::expect(&mut user, ber::OCTETS)?;
        let mut count = || -> Result<u32, Error> {
            let number = ber::expect_i32(&mut user)?;
            u32::try_from(number)
                .map_err(|_| ber::malformed("a time or number of starts is below 0"))
        };
        let (boots, time) = (count()?, count()?);
        let name = ber::expect(&mut user, ber::OCTETS)?;
        let tag = ber::expect(&mut user, ber::OCTETS)?;
        // The tag is a part of `bytes`.
        let tag_at = (tag.as_ptr() as usize).saturating_sub(bytes.as_ptr() as usize);
        let salt = ber::expect(&mut user, ber::OCTETS)?;
        let is_private = flags & PRIVATE != 0;
        let content =
            if is_private { ber::expect(&mut message, ber::OCTETS)? } else { message.rest() };
        let is_authenticated = flags & AUTHENTICATED != 0;
        Ok(Self {
            id,
            is_authenticated,
            is_private,
            engine,
            boots,
            time,
            user: name,
            tag,
            salt,
            tag_at,
            content,
        })
    }

    /// Returns the message with zeros in the place of the tag.
    pub(super) fn without_tag(&self, bytes: &[u8]) -> Vec<u8> {
        let mut message = bytes.to_vec();
        if let Some(place) = message.get_mut(self.tag_at..self.tag_at + self.tag.len()) {
            place.fill(0);
        }
        message
    }
}

/// The security of a message to a device.
#[derive(Debug, Default)]
pub(super) struct Parameters<'a> {
    pub(super) engine: &'a [u8],
    pub(super) boots: u32,
    pub(super) time: u32,
    pub(super) user: &'a [u8],
    /// Bytes of the tag, 0 without one. They are zero.
    pub(super) tag_bytes: usize,
    pub(super) salt: &'a [u8],
}

/// Writes a message. `content` is a scoped request, encrypted if there is a salt.
pub(super) fn write(id: i32, parameters: &Parameters<'_>, content: &[u8]) -> Vec<u8> {
    let is_private = !parameters.salt.is_empty();
    let mut flags = REPORTABLE;
    flags |= if parameters.tag_bytes > 0 { AUTHENTICATED } else { 0 };
    flags |= if is_private { PRIVATE } else { 0 };
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let mut out = Vec::new();
    ber::put_with(&mut out, ber::SEQUENCE, |message| {
        ber::put_i32(message, VERSION);
        ber::put_with(message, ber::SEQUENCE, |head| {
            ber::put_i32(head, id);
            ber::put_i32(head, MAX_RESPONSE_BYTES);
            ber::put(head, ber::OCTETS, &[flags]);
            ber::put_i32(head, USER_MODEL);
        });
        ber::put_with(message, ber::OCTETS, |octets| {
            ber::put_with(octets, ber::SEQUENCE, |user| {
                ber::put(user, ber::OCTETS, parameters.engine);
                ber::put_i32(user, number(parameters.boots));
                ber::put_i32(user, number(parameters.time));
                ber::put(user, ber::OCTETS, parameters.user);
                ber::put(
                    user,
                    ber::OCTETS,
                    &[0; MAX_TAG_BYTES][..parameters.tag_bytes.min(MAX_TAG_BYTES)],
                );
                ber::put(user, ber::OCTETS, parameters.salt);
            });
        });
        if is_private {
            ber::put(message, ber::OCTETS, content);
        } else {
            message.extend(content);
        }
    });
    out
}
