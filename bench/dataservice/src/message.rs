//! Messages on the sockets of the service. A socket keeps the bounds of messages (`SOCK_SEQPACKET`), and a message is
//! a head of 80 bytes and at most `eager_buffer_bytes` of its body. All numbers are little-endian.
//!
//! | offset | type | name |
//! |--:|--|--|
//! | 0 | u32 | magic `SKDS` |
//! | 4 | u8 | version, 1 |
//! | 5 | u8 | kind: 1 hello, 2 welcome, 3 request, 4 response |
//! | 6 | u8 | of a response: 0 done, 1 failed; of a hello: 0 a client, 1 a server that calls another server |
//! | 7 | u8 | 0 |
//! | 8 | u64 | number of the call, chosen by the origin |
//! | 16 | u32 | number of the RPC; of a welcome: size of the target's eager buffer in bytes |
//! | 20 | u32 | bytes of the whole body |
//! | 24 | u64 | of a request: the place in the origin's region of the part of its body that overflows |
//! | 32 | u64 | of a request: the place in the origin's region for an output that overflows |
//! | 40 | u32 | bytes at that place |
//! | 44 | u32 | 0 |
//! | 48 | 32 bytes | the context of the request, see `skopos_rpc` |
//!
//! The body of a hello is the name of the origin, and the message carries the descriptor of the origin's region. The
//! body of a welcome is the name of the target.

use crate::error::{Error, Result};

/// Bytes of a head.
pub const HEAD_BYTES: usize = 80;

/// The longest body, of which most lies in a region: a batch of the largest case has a tenth of it.
pub const MAX_BODY_BYTES: u32 = 16 << 20;

const MAGIC: u32 = u32::from_le_bytes(*b"SKDS");
const VERSION: u8 = 1;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first message of an origin.
    Hello,
    /// The target's answer to a hello.
    Welcome,
    /// A call.
    Request,
    /// The answer to a call.
    Response,
}

/// The head of a message; the [module](self) has the meaning of each field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The kind.
    pub kind: Kind,
    /// 0, or the kind's own flag.
    pub flag: u8,
    /// Number of the call.
    pub call: u64,
    /// Number of the RPC.
    pub rpc: u32,
    /// Bytes of the whole body.
    pub body_bytes: u32,
    /// Place of the overflow in the origin's region.
    pub overflow_at: u64,
    /// Place for the output in the origin's region.
    pub reply_at: u64,
    /// Bytes at `reply_at`.
    pub reply_bytes: u32,
    /// Context of the request.
    pub context: [u8; 32],
}

impl Head {
    /// A head with nothing but its kind and the length of its body.
    #[must_use]
    pub fn new(kind: Kind, body_bytes: u32) -> Self {
        Self {
            kind,
            flag: 0,
            call: 0,
            rpc: 0,
            body_bytes,
            overflow_at: 0,
            reply_at: 0,
            reply_bytes: 0,
            context: [0; 32],
        }
    }

    /// Encodes the head.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let kind = match self.kind {
            Kind::Hello => 1,
            Kind::Welcome => 2,
            Kind::Request => 3,
            Kind::Response => 4,
        };
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&[VERSION, kind, self.flag, 0]);
        bytes[8..16].copy_from_slice(&self.call.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.rpc.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.overflow_at.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.reply_at.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.reply_bytes.to_le_bytes());
        bytes[48..80].copy_from_slice(&self.context);
        bytes
    }

    /// Decodes a message into its head and the part of its body that it carries.
    ///
    /// # Errors
    /// The message is shorter than a head, of another program or version, or its lengths contradict each other.
    pub fn parse(message: &[u8]) -> Result<(Self, &[u8])> {
        let (head, eager) = message
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(Error::Message("it is shorter than a head"))?;
        if word(head, 0) != MAGIC || head[4] != VERSION {
            return Err(Error::Message("it is not a message of this version of the service"));
        }
        let kind = match head[5] {
            1 => Kind::Hello,
            2 => Kind::Welcome,
            3 => Kind::Request,
            4 => Kind::Response,
            _ => return Err(Error::Message("its kind is not known")),
        };
        let body_bytes = word(head, 20);
        if body_bytes > MAX_BODY_BYTES {
            return Err(Error::Message("its body is longer than 16 MiB"));
        }
        if eager.len() > body_bytes as usize {
            return Err(Error::Message("it carries more than its body"));
        }
        let mut context = [0; 32];
        context.copy_from_slice(&head[48..80]);
        let head = Self {
            kind,
            flag: head[6],
            call: long(head, 8),
            rpc: word(head, 16),
            body_bytes,
            overflow_at: long(head, 24),
            reply_at: long(head, 32),
            reply_bytes: word(head, 40),
            context,
        };
        Ok((head, eager))
    }
}

fn word(head: &[u8; HEAD_BYTES], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&head[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn long(head: &[u8; HEAD_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives_the_wire() {
        let mut head = Head::new(Kind::Request, 3);
        head.call = u64::MAX;
        head.rpc = 9;
        head.overflow_at = 1 << 40;
        head.reply_at = 4096;
        head.reply_bytes = 77;
        head.context = [5; 32];
        let message = [&head.to_bytes()[..], b"ab"].concat();
        assert_eq!(Head::parse(&message).expect("a message"), (head, &b"ab"[..]));
    }

    #[test]
    fn a_hostile_message_is_refused() {
        let good = [&Head::new(Kind::Request, 2).to_bytes()[..], b"ab"].concat();
        assert!(Head::parse(&good).is_ok());
        for at in [0, 4, 5] {
            let mut bad = good.clone();
            bad[at] = 0xEE;
            assert!(Head::parse(&bad).is_err(), "byte {at}");
        }
        for length in 0..HEAD_BYTES {
            assert!(Head::parse(&good[..length]).is_err(), "{length} bytes");
        }
        let mut long = good.clone();
        long[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Head::parse(&long).is_err());
        assert!(Head::parse(&[&good[..], b"c"].concat()).is_err());
    }
}
