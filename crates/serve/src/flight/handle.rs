//! What stands in tickets and names prepared statements: bytes that a client keeps and gives back.
//!
//! They are a protocol buffer, and come from outside like any request: whatever is not exactly what
//! [`Handle::encode`] makes is refused. A statement travels in its own ticket, so that the hub need not
//! remember it; it has no right that its text has not.

use prost::Message as _;
use prost::bytes::Bytes;

/// The longest handle: a statement, and what stands around it.
pub(super) const MAX_HANDLE_BYTES: usize = 129 * 1024;

/// What a handle is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Handle {
    /// A statement, as it was written.
    Statement(String),
    /// A prepared statement that a hub holds.
    Prepared {
        /// Which hub: another one knows nothing of it.
        hub: u64,
        /// Which of its statements.
        number: u64,
    },
}

#[derive(Clone, PartialEq, prost::Message)]
struct Encoded {
    /// Of this layout.
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(string, tag = "2")]
    sql: String,
    #[prost(fixed64, tag = "3")]
    hub: u64,
    #[prost(fixed64, tag = "4")]
    number: u64,
}

const VERSION: u32 = 1;

impl Handle {
    /// Its bytes.
    pub(super) fn encode(&self) -> Bytes {
        let encoded = match self {
            Self::Statement(sql) => {
                Encoded { version: VERSION, sql: sql.clone(), ..Encoded::default() }
            }
            Self::Prepared { hub, number } => {
                Encoded { version: VERSION, hub: *hub, number: *number, ..Encoded::default() }
            }
        };
        encoded.encode_to_vec().into()
    }

    /// Reads what a client gave back; `None` if it is no handle.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_HANDLE_BYTES {
            return None;
        }
        let Encoded { version, sql, hub, number } = Encoded::decode(bytes).ok()?;
        let handle = match (sql.is_empty(), hub, number) {
            (false, 0, 0) => Self::Statement(sql),
            (true, 1.., 1..) => Self::Prepared { hub, number },
            _ => return None,
        };
        // One handle has one form, so that nothing can be hidden in it.
        (version == VERSION && handle.encode() == bytes).then_some(handle)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_made_is_read(sql in ".{1,300}", hub in 1..u64::MAX, number in 1..u64::MAX) {
            for handle in [Handle::Statement(sql), Handle::Prepared { hub, number }] {
                prop_assert_eq!(Handle::decode(&handle.encode()), Some(handle));
            }
        }

        #[test]
        fn what_is_read_is_what_was_made(bytes: Vec<u8>) {
            if let Some(handle) = Handle::decode(&bytes) {
                prop_assert_eq!(handle.encode(), bytes);
            }
        }
    }

    #[test]
    fn damage_is_refused() {
        let sound = Handle::Statement("SELECT 1".to_owned()).encode();
        for end in 0..sound.len() {
            assert_eq!(Handle::decode(&sound[..end]), None, "{end}");
        }
        let twice = [&sound[..], &sound[..]].concat();
        assert_eq!(Handle::decode(&twice), None);
        let huge = Handle::Statement("x".repeat(MAX_HANDLE_BYTES)).encode();
        assert_eq!(Handle::decode(&huge), None);
        assert_eq!(Handle::decode(&[]), None);
    }
}
