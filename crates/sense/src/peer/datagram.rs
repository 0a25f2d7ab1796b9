//! The messages between agents: a probe and its answer. Both have the same length, so that a forged
//! sender's address does not turn a node into an amplifier.
//!
//! Little-endian, 112 bytes:
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | 4 bytes | magic, `SKPP` |
//! | 4 | u8 | version, 1 |
//! | 5 | u8 | kind: 1 probe, 2 answer |
//! | 6 | u16 | length of the name, at most 64 |
//! | 8 | u64 | sequence number of the prober, sent back unchanged |
//! | 16 | u64 | nonce of the prober, sent back unchanged; it cannot be guessed without seeing the probe |
//! | 24 | i64 | answer: UNIX time of the answering node in nanoseconds when the probe arrived; probe: 0 |
//! | 32 | i64 | answer: UNIX time of the answering node in nanoseconds when the answer left; probe: 0 |
//! | 40 | 64 bytes | name of the sending node, the rest zero |
//! | 104 | 8 bytes | zero; ignored |
//!
//! NTP's other two times (RFC 5905, section 8) stay with the prober, which looks them up by the
//! sequence number.

/// The length of every datagram.
pub(crate) const DATAGRAM_BYTES: usize = 112;

/// The longest name of a node: the limit of POSIX for host names, with which topics begin.
pub(crate) const MAX_NAME_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"SKPP";
const VERSION: u8 = 1;
const PROBE: u8 = 1;
const ANSWER: u8 = 2;
const NAME_AT: usize = 40;

/// A node's name, as in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    bytes: [u8; MAX_NAME_BYTES],
    len: u8,
}

impl Name {
    /// Returns `None` if it is empty or too long.
    pub(crate) fn new(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_NAME_BYTES];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        let len = u8::try_from(name.len()).ok().filter(|&len| len > 0)?;
        Some(Self { bytes, len })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A probe or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) sequence: u64,
    pub(crate) nonce: u64,
    /// `None` for a probe.
    pub(crate) times: Option<Times>,
    /// The name of the sending node.
    pub(crate) name: Name,
}

/// UNIX times of the answering node, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) received: i64,
    pub(crate) sent: i64,
}

impl Datagram {
    /// Reads a datagram. Returns `None` for bytes that are not exactly a datagram of version 1.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; DATAGRAM_BYTES] = bytes.try_into().ok()?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return None;
        }
        let times = Times { received: i64_at(bytes, 24), sent: i64_at(bytes, 32) };
        let times = match bytes[5] {
            PROBE => None,
            // Time does not go back while an answer is written.
            ANSWER if times.received <= times.sent => Some(times),
            _ => return None,
        };
        let len = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
        let name = Name::new(bytes[NAME_AT..NAME_AT + MAX_NAME_BYTES].get(..len)?)?;
        Some(Self { sequence: u64_at(bytes, 8), nonce: u64_at(bytes, 16), times, name })
    }

    /// Writes the datagram.
    pub(crate) fn encode(&self) -> [u8; DATAGRAM_BYTES] {
        let mut bytes = [0; DATAGRAM_BYTES];
        let Self { sequence, nonce, times, name } = self;
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = if times.is_some() { ANSWER } else { PROBE };
        bytes[6] = name.len;
        bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&nonce.to_le_bytes());
        let Times { received, sent } = times.unwrap_or(Times { received: 0, sent: 0 });
        bytes[24..32].copy_from_slice(&received.to_le_bytes());
        bytes[32..40].copy_from_slice(&sent.to_le_bytes());
        bytes[NAME_AT..NAME_AT + MAX_NAME_BYTES].copy_from_slice(&name.bytes);
        bytes
    }
}

fn u64_at(bytes: &[u8; DATAGRAM_BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn i64_at(bytes: &[u8; DATAGRAM_BYTES], at: usize) -> i64 {
    u64_at(bytes, at).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Datagram {
        Datagram {
            sequence: 0x0102_0304_0506_0708,
            nonce: u64::MAX,
            times: Some(Times { received: -5, sent: 7 }),
            name: Name::new(b"n01").expect("a name"),
        }
    }

    #[test]
    fn a_written_datagram_is_read_back() {
        let longest = Name::new(&[b'n'; MAX_NAME_BYTES]).expect("a name");
        for datagram in
            [answer(), Datagram { times: None, ..answer() }, Datagram { name: longest, ..answer() }]
        {
            assert_eq!(Datagram::decode(&datagram.encode()), Some(datagram));
        }
        assert_eq!(Name::new(b""), None);
        assert_eq!(Name::new(&[b'n'; MAX_NAME_BYTES + 1]), None);
    }

    #[test]
    fn offsets_are_as_documented() {
        let bytes = answer().encode();
        assert_eq!(&bytes[..8], b"SKPP\x01\x02\x03\x00");
        assert_eq!(bytes[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[24..32], (-5i64).to_le_bytes());
        assert_eq!(bytes[32..40], 7i64.to_le_bytes());
        assert_eq!(&bytes[40..44], b"n01\0");
    }

    #[test]
    fn other_bytes_are_refused() {
        let good = answer().encode();
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            Datagram::decode(&bytes)
        };
        assert_eq!(Datagram::decode(&good[..111]), None);
        assert_eq!(Datagram::decode(&[&good[..], &[0]].concat()), None);
        assert_eq!(Datagram::decode(b""), None);
        assert_eq!(with(0, b's'), None, "magic");
        assert_eq!(with(4, 2), None, "version");
        assert_eq!(with(5, 3), None, "kind");
        assert_eq!(with(6, 0), None, "no name");
        assert_eq!(with(6, 65), None, "name too long");
        assert_eq!(with(7, 1), None, "name far too long");
        assert_eq!(with(39, 0x80), None, "sent before it arrived");
        // Any single byte may change to any value: some results are other datagrams, but none may
        // panic.
        for at in 0..good.len() {
            for byte in 0..=255 {
                with(at, byte);
            }
        }
    }
}
