//! The messages between a primary and its replica, and their binary form.
//!
//! # Layout
//! Little-endian: a tag (u8) and the fields. A text or a list of bytes has its length (u32) before it, a list of names their
//! number.

use skopos_model::ByteReader;
use skopos_model::job::MAX_DOCUMENT_BYTES;

/// The longest message: the longest record, with room for its fields and for the records before it.
pub const MAX_MESSAGE_BYTES: usize = MAX_DOCUMENT_BYTES + (1 << 20);

/// A place in the logs of a primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// Generation of the log.
    pub generation: u64,
    /// Byte of the file.
    pub at: u64,
    /// Number of the message of those that end at this byte.
    pub piece: u32,
}

/// A message of a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Committed records, in their order.
    Records {
        /// The place of their end.
        end: LogPlace,
        /// The records.
        records: Vec<u8>,
    },
    /// Names of the primary's segments.
    List {
        /// The names.
        names: Vec<String>,
        /// True if all are named.
        is_last: bool,
    },
    /// Bytes of a segment that is missing.
    Chunk {
        /// Name of the segment.
        name: String,
        /// Place of the first of these bytes.
        at: u64,
        /// Bytes of the file.
        total: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A segment that is missing is damaged at the primary, too.
    Absent {
        /// Name of the segment.
        name: String,
    },
    /// The segments that were missing are sent.
    Finish,
    /// Records follow that begin at the place that was acknowledged last: the primary knows that the replica was full.
    Resume,
    /// Asks for bytes of a segment.
    Fetch {
        /// Name of the segment.
        name: String,
        /// Place of the first byte.
        at: u64,
    },
}

/// A message of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The first message.
    Welcome {
        /// A number that a replica gets when its folder is made.
        id: u64,
    },
    /// The records up to this place are on the disk.
    Durable(LogPlace),
    /// The replica has no room. It passes over records until [`Message::Resume`], and takes segments meanwhile, which make
    /// room.
    Full {
        /// The reason, for people.
        why: String,
    },
    /// Segments of the list that are not there.
    Missing {
        /// Some of them, or all.
        names: Vec<String>,
    },
    /// A segment that came was damaged.
    Refused {
        /// Name of the segment.
        name: String,
        /// The damage.
        why: String,
    },
    /// The listed segments are in place, and the records in them are not kept any longer.
    Finished,
    /// Bytes of a segment that was asked for.
    Piece {
        /// Name of the segment.
        name: String,
        /// Place of the first of these bytes.
        at: u64,
        /// Bytes of the file.
        total: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The replica has no whole copy of a segment that was asked for.
    NoCopy {
        /// Name of the segment.
        name: String,
    },
}

impl Message {
    /// Returns the binary form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Records { end, records } => {
                out.push(0);
                put_place(&mut out, *end);
                put(&mut out, records);
            }
            Self::List { names, is_last } => {
                out.extend([1, u8::from(*is_last)]);
                put_names(&mut out, names);
            }
            Self::Chunk { name, at, total, bytes } => {
                out.push(2);
                put_chunk(&mut out, name, (*at, *total), bytes);
            }
            Self::Absent { name } => {
                out.push(5);
                put(&mut out, name.as_bytes());
            }
            Self::Finish => out.push(3),
            Self::Resume => out.push(6),
            Self::Fetch { name, at } => {
                out.push(4);
                put(&mut out, name.as_bytes());
                out.extend(at.to_le_bytes());
            }
        }
        out
    }

    /// Reads the binary form; `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        let message = match reader.u8()? {
            0 => {
                let end = place(&mut reader)?;
                Self::Records { end, records: take(&mut reader)?.to_vec() }
            }
            1 => {
                let is_last = reader.u8()? != 0;
                Self::List { names: names(&mut reader)?, is_last }
            }
            2 => {
                let (name, at, total, bytes) = chunk(&mut reader)?;
                Self::Chunk { name, at, total, bytes }
            }
            3 => Self::Finish,
            4 => Self::Fetch { name: text(&mut reader)?, at: reader.u64()? },
            6 => Self::Resume,
            5 => Self::Absent { name: text(&mut reader)? },
            _ => return None,
        };
        reader.is_empty().then_some(message)
    }
}

impl Reply {
    /// Returns the binary form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Welcome { id } => {
                out.push(0);
                out.extend(id.to_le_bytes());
            }
            Self::Durable(end) => {
                out.push(1);
                put_place(&mut out, *end);
            }
            Self::Full { why } => {
                out.push(2);
                put(&mut out, why.as_bytes());
            }
            Self::Missing { names } => {
                out.push(3);
                put_names(&mut out, names);
            }
            Self::Refused { name, why } => {
                out.push(4);
                put(&mut out, name.as_bytes());
                put(&mut out, why.as_bytes());
            }
            Self::Finished => out.push(5),
            Self::Piece { name, at, total, bytes } => {
                out.push(6);
                put_chunk(&mut out, name, (*at, *total), bytes);
            }
            Self::NoCopy { name } => {
                out.push(7);
                put(&mut out, name.as_bytes());
            }
        }
        out
    }

    /// Reads the binary form; `None` if the bytes are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        let reply = match reader.u8()? {
            0 => Self::Welcome { id: reader.u64()? },
            1 => Self::Durable(place(&mut reader)?),
            2 => Self::Full { why: text(&mut reader)? },
            3 => Self::Missing { names: names(&mut reader)? },
            4 => Self::Refused { name: text(&mut reader)?, why: text(&mut reader)? },
            5 => Self::Finished,
            6 => {
                let (name, at, total, bytes) = chunk(&mut reader)?;
                Self::Piece { name, at, total, bytes }
            }
            7 => Self::NoCopy { name: text(&mut reader)? },
            _ => return None,
        };
        reader.is_empty().then_some(reply)
    }
}

/// A record of a producer, as it lies in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent<'b> {
    pub(super) producer: &'b str,
    pub(super) epoch: i64,
    pub(super) sequence: i64,
    /// The binary form of the record.
    pub(super) content: &'b [u8],
}

/// Appends a record to those of a message.
pub(super) fn push_record(records: &mut Vec<u8>, record: &Sent<'_>) {
    put(records, record.producer.as_bytes());
    records.extend(record.epoch.to_le_bytes());
    records.extend(record.sequence.to_le_bytes());
    put(records, record.content);
}

/// Reads the next record of a message; `None` if it is not whole.
pub(super) fn next_record<'b>(reader: &mut ByteReader<'b>) -> Option<Sent<'b>> {
    let length = usize::try_from(reader.u32()?).ok()?;
    let producer = reader.text(length)?;
    let (epoch, sequence) = (reader.i64()?, reader.i64()?);
    Some(Sent { producer, epoch, sequence, content: take(reader)? })
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_place(out: &mut Vec<u8>, place: LogPlace) {
    out.extend(place.generation.to_le_bytes());
    out.extend(place.at.to_le_bytes());
    out.extend(place.piece.to_le_bytes());
}

fn put_names(out: &mut Vec<u8>, names: &[String]) {
    out.extend((names.len() as u32).to_le_bytes());
    names.iter().for_each(|name| put(out, name.as_bytes()));
}

fn put_chunk(out: &mut Vec<u8>, name: &str, (at, total): (u64, u64), bytes: &[u8]) {
    put(out, name.as_bytes());
    out.extend(at.to_le_bytes());
    out.extend(total.to_le_bytes());
    put(out, bytes);
}

fn take<'b>(reader: &mut ByteReader<'b>) -> Option<&'b [u8]> {
    let length = usize::try_from(reader.u32()?).ok()?;
    reader.take(length)
}

fn text(reader: &mut ByteReader<'_>) -> Option<String> {
    let length = usize::try_from(reader.u32()?).ok()?;
    reader.text(length).map(str::to_owned)
}

fn place(reader: &mut ByteReader<'_>) -> Option<LogPlace> {
    Some(LogPlace { generation: reader.u64()?, at: reader.u64()?, piece: reader.u32()? })
}

fn names(reader: &mut ByteReader<'_>) -> Option<Vec<String>> {
    let count = reader.u32()?;
    // The number is from outside: it sizes nothing.
    (0..count).map(|_| text(reader)).collect()
}

fn chunk(reader: &mut ByteReader<'_>) -> Option<(String, u64, u64, Vec<u8>)> {
    Some((text(reader)?, reader.u64()?, reader.u64()?, take(reader)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_survive_their_binary_form_and_every_cut_is_noticed() {
        let (name, bytes) = ("segment".to_owned(), vec![1, 2, 3]);
        let end = LogPlace { generation: 3, at: 4, piece: 5 };
        let messages = [
            Message::Records { end, records: bytes.clone() },
            Message::List { names: vec![name.clone(), String::new()], is_last: true },
            Message::Chunk { name: name.clone(), at: 7, total: 9, bytes: bytes.clone() },
            Message::Finish,
            Message::Resume,
            Message::Absent { name: name.clone() },
            Message::Fetch { name: name.clone(), at: 1 },
        ];
        for message in messages {
            let encoded = message.encode();
            assert_eq!(Message::decode(&encoded), Some(message));
            (0..encoded.len()).for_each(|end| assert_eq!(Message::decode(&encoded[..end]), None));
        }
        let why = "full".to_owned();
        let replies = [
            Reply::Welcome { id: 8 },
            Reply::Durable(end),
            Reply::Full { why: why.clone() },
            Reply::Missing { names: vec![name.clone()] },
            Reply::Refused { name: name.clone(), why },
            Reply::Finished,
            Reply::Piece { name: name.clone(), at: 7, total: 9, bytes },
            Reply::NoCopy { name },
        ];
        for reply in replies {
            let encoded = reply.encode();
            assert_eq!(Reply::decode(&encoded), Some(reply));
            (0..encoded.len()).for_each(|end| assert_eq!(Reply::decode(&encoded[..end]), None));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (Message::decode(&bytes), Reply::decode(&bytes));
            let mut reader = ByteReader::new(&bytes);
            while next_record(&mut reader).is_some() {}
        }
    }
}
