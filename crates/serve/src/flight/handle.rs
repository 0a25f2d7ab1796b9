//! Handles in tickets and of prepared statements: bytes that a client keeps and returns.
//!
//! A handle is a protocol buffer. It comes from outside like any request, so bytes that [`Handle::encode`] does not
//! produce are refused. The ticket of a statement contains its text, so the hub does not store it; such a ticket has no
//! more rights than the text.

use prost::Message as _;
use prost::bytes::Bytes;

/// The longest handle: the longest statement and the other fields.
pub(super) const MAX_HANDLE_BYTES: usize = 129 * 1024;

/// The decoded handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Handle {
    /// A statement, as it was written.
    Statement(String),
    /// A prepared statement that a hub holds.
    Prepared {
        /// Identifier of the hub. Other hubs do not know the statement.
        hub: u64,
        /// Number of the statement in that hub.
        number: u64,
    },
}

#[derive(Clone, PartialEq, prost::Message)]
struct Encoded {
    /// Version of this layout.
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
    /// Returns its bytes.
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

    /// Decodes the bytes of a client; `None` if they are not a handle.
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
        // Each handle has only one encoding, so that a client cannot hide data in it.
        (version == VERSION && handle.encode() == bytes).then_some(handle)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_encoded_handle_is_decoded(sql in ".{1,300}", hub in 1..u64::MAX, number in 1..u64::MAX) {
            for handle in [Handle::Statement(sql), Handle::Prepared { hub, number }] {
                prop_assert_eq!(Handle::decode(&handle.encode()), Some(handle));
            }
        }

        #[test]
        fn a_decoded_handle_has_one_encoding(bytes: Vec<u8>) {
            if let Some(handle) = Handle::decode(&bytes) {
                prop_assert_eq!(handle.encode(), bytes);
            }
        }
    }

    #[test]
    fn a_damaged_handle_is_refused() {
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
