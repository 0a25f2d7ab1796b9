//! The message of the live plane: what one publisher reports at once. A batch holds new topics, topics
//! that are gone, samples, and checks that found nothing new. It is one message below 64 KB, and its
//! publisher numbers its batches without gaps.
//!
//! # Layout
//! Numbers are LEB128 (`varint`), signed numbers in zigzag order; numbers of fixed width are
//! little-endian.
//!
//! ```text
//! "SKB" layout        4 bytes
//! sequence            varint
//! sent                signed: nanoseconds of UNIX time; the times below are relative to it
//! described           count; each: index, topic, unit, kind, type
//! gone                count; each: index
//! samples             count; then columns, each with an entry a sample:
//!   indices           signed, difference to the previous one
//!   times             signed, relative to `sent`
//!   origins           one byte 0 if all are measured numbers; else 1 and a byte each: 0 measured,
//!                     1 predicted, 2 unknown, and 4 more if the value is structured
//!   bounds            8 bytes for each predicted sample
//!   bits              8 bytes each; of a structured value the length of its text
//!   texts             of the structured values, one after the other
//! checked             count; each: signed time relative to `sent`, count of runs; each run: index, length
//! ```
//!
//! The description of a vertex gives the type of its numbers. A reader that does not have that
//! description has missed a batch, and asks for a snapshot, which consists of batches as well.

use skopos_model::{Kind, Origin, Scalar, Structured, Timestamp, Topic, Unit, Value, ValueType};

use crate::bytes::{MessageReader, put_signed, put_text, put_varint};
use crate::error::Error;

/// The version of the layout.
const LAYOUT: u8 = 1;

const MAGIC: [u8; 4] = [b'S', b'K', b'B', LAYOUT];

/// The longest batch. The transport cuts longer messages into pieces, and those are lost far more often.
pub const MAX_BATCH_BYTES: usize = 60_000;

/// The longest batch that a publisher sends to its followers: with the tags of 64 followers it fits into one piece of the
/// transport. A part of a snapshot waits for room, so it may be longer.
const LIVE_BATCH_BYTES: usize = 6000;

/// The most vertices that one batch may report as checked: two for each vertex that a publisher can
/// have. Bounds the work that a short message causes.
const MAX_CHECKED: u64 = 131_072;

/// The vertex that one publisher has at one index.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Number of the vertex in the samples of its publisher.
    pub index: u32,
    /// Topic of the vertex.
    pub topic: Topic,
    /// Unit of its values.
    pub unit: Unit,
    /// Kind of its values: counter, gauge or state.
    pub kind: Kind,
    /// Type of its values.
    pub value_type: ValueType,
}

/// A check of some vertices that found nothing new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Time of the check.
    pub at: Timestamp,
    /// Runs of indices: the first index and the length.
    pub runs: Vec<(u32, u32)>,
}

/// A sample of the vertex with this index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexedSample {
    /// Index of the vertex.
    pub index: u32,
    /// Time at which the value held.
    pub time: Timestamp,
    /// Origin of the value: measured, predicted or unknown.
    pub origin: Origin,
    /// The value.
    pub value: Content,
}

/// The most runs of a check that stay together when a batch is split: less than the shortest message.
const MAX_RUNS: usize = 1024;

/// The longest index: 32 bits, seven a byte.
const MAX_INDEX_BYTES: usize = 5;

impl Description {
    fn most_bytes(&self) -> usize {
        20 + self.topic.as_str().len() + self.unit.as_str().len()
    }
}

impl Checked {
    fn most_bytes(&self) -> usize {
        20 + 2 * MAX_INDEX_BYTES * self.runs.len()
    }
}

impl IndexedSample {
    fn most_bytes(&self) -> usize {
        36 + text_bytes(&self.value)
    }
}

/// A value without its type, which the description of the vertex has.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The 64 bits of a number.
    Bits(u64),
    /// A record, list or text.
    Structured(Structured),
}

impl Content {
    /// Returns the value as one of this type; `None` if it cannot be of this type.
    // Hot: called for each sample, from other crates too.
    #[inline]
    pub fn value(self, value_type: ValueType) -> Option<Value> {
        match self {
            Self::Bits(bits) => Scalar::from_bits(value_type, bits).map(Value::from),
            Self::Structured(structured) => {
                (value_type == ValueType::Structured).then_some(Value::Structured(structured))
            }
        }
    }
}

impl From<&Value> for Content {
    // Hot: called for each sample, from other crates too.
    #[inline]
    fn from(value: &Value) -> Self {
        match value {
            Value::F64(v) => Self::Bits(v.to_bits()),
            Value::I64(v) => Self::Bits(v.cast_unsigned()),
            Value::U64(v) => Self::Bits(*v),
            Value::Structured(structured) => Self::Structured(structured.clone()),
        }
    }
}

/// A message of the live plane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Sequence number: one more than that of the batch before. A snapshot has the number of the last
    /// batch that it covers.
    pub sequence: u64,
    /// Time at which the batch was sent, by the clock of its publisher.
    pub sent_at: Timestamp,
    /// New vertices.
    pub described: Vec<Description>,
    /// Indices of vertices that are gone.
    pub gone: Vec<u32>,
    /// Samples; those of one vertex are in the order of their times.
    pub samples: Vec<IndexedSample>,
    /// Checks that found nothing new.
    pub checked: Vec<Checked>,
}

impl Batch {
    /// Returns an upper bound of the message's length in bytes.
    pub fn most_bytes(&self) -> usize {
        let described: usize = self.described.iter().map(Description::most_bytes).sum();
        let samples: usize = self.samples.iter().map(IndexedSample::most_bytes).sum();
        let checked: usize = self.checked.iter().map(Checked::most_bytes).sum();
        64 + described + MAX_INDEX_BYTES * self.gone.len() + samples + checked
    }

    /// Writes the batch as a message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.most_bytes());
        out.extend_from_slice(&MAGIC);
        put_varint(&mut out, self.sequence);
        let base = self.sent_at.as_nanos();
        put_signed(&mut out, base);
        put_varint(&mut out, self.described.len() as u64);
        for description in &self.described {
            put_varint(&mut out, u64::from(description.index));
            put_text(&mut out, description.topic.as_str());
            put_text(&mut out, description.unit.as_str());
            out.extend([description.kind.code(), description.value_type.code()]);
        }
        put_varint(&mut out, self.gone.len() as u64);
        self.gone.iter().for_each(|index| put_varint(&mut out, u64::from(*index)));
        self.encode_samples(base, &mut out);
        put_varint(&mut out, self.checked.len() as u64);
        for checked in &self.checked {
            put_signed(&mut out, checked.at.as_nanos().wrapping_sub(base));
            put_varint(&mut out, checked.runs.len() as u64);
            for (first, length) in &checked.runs {
                put_varint(&mut out, u64::from(*first));
                put_varint(&mut out, u64::from(*length));
            }
        }
        out
    }

    fn encode_samples(&self, base: i64, out: &mut Vec<u8>) {
        put_varint(out, self.samples.len() as u64);
        let mut previous = 0;
        for sample in &self.samples {
            put_signed(out, i64::from(sample.index) - previous);
            previous = i64::from(sample.index);
        }
        for sample in &self.samples {
            put_signed(out, sample.time.as_nanos().wrapping_sub(base));
        }
        let is_mixed = self.samples.iter().any(|sample| origin_code(sample) != 0);
        out.push(u8::from(is_mixed));
        if is_mixed {
            out.extend(self.samples.iter().map(origin_code));
        }
        for sample in &self.samples {
            if let Origin::Predicted { bound } = sample.origin {
                out.extend(bound.to_bits().to_le_bytes());
            }
        }
        let mut texts = Vec::new();
        for sample in &self.samples {
            let bits = match &sample.value {
                Content::Bits(bits) => *bits,
                Content::Structured(structured) => {
                    let before = texts.len();
                    texts.extend_from_slice(structured.to_string().as_bytes());
                    (texts.len() - before) as u64
                }
            };
            out.extend(bits.to_le_bytes());
        }
        out.extend_from_slice(&texts);
    }

    /// Splits the batch into at least one batch, each short enough for a message. Descriptions come
    /// first, so that a reader can take in each part in turn.
    pub fn split(self) -> Vec<Self> {
        self.split_to(MAX_BATCH_BYTES)
    }

    /// Splits the batch as [`split`](Self::split) does, into batches that are short enough for all followers: longer ones
    /// are sent in pieces, and are lost more often.
    pub fn split_for_followers(self) -> Vec<Self> {
        self.split_to(LIVE_BATCH_BYTES)
    }

    fn split_to(self, most: usize) -> Vec<Self> {
        if self.most_bytes() <= most {
            return vec![self];
        }
        let fresh = || Self { sequence: self.sequence, sent_at: self.sent_at, ..Self::default() };
        let empty = Self::default().most_bytes();
        let mut parts = vec![fresh()];
        let mut room = most - empty;
        let mut part = |parts: &mut Vec<Self>, bytes: usize| {
            if bytes > room {
                parts.push(fresh());
                room = most - empty;
            }
            room = room.saturating_sub(bytes);
            parts.len() - 1
        };
        for description in self.described {
            let at = part(&mut parts, description.most_bytes());
            parts[at].described.push(description);
        }
        for sample in self.samples {
            let at = part(&mut parts, sample.most_bytes());
            parts[at].samples.push(sample);
        }
        for Checked { at, runs } in self.checked {
            for runs in runs.chunks(MAX_RUNS) {
                let checked = Checked { at, runs: runs.to_vec() };
                let at = part(&mut parts, checked.most_bytes());
                parts[at].checked.push(checked);
            }
        }
        for index in self.gone {
            let at = part(&mut parts, MAX_INDEX_BYTES);
            parts[at].gone.push(index);
        }
        parts
    }

    /// Returns the number of a batch; `None` if the bytes do not begin as one.
    pub(crate) fn sequence_of(bytes: &[u8]) -> Option<u64> {
        let mut reader = MessageReader::new(bytes);
        reader.magic(MAGIC).ok()?;
        reader.varint().ok()
    }

    /// Reads a message.
    ///
    /// # Errors
    /// The message is not a batch, has another layout, or is damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = MessageReader::new(bytes);
        reader.magic(MAGIC)?;
        let mut batch = Self { sequence: reader.varint()?, ..Self::default() };
        let base = reader.signed()?;
        batch.sent_at = Timestamp::from_nanos(base);
        for _ in 0..reader.count(5)? {
            batch.described.push(description(&mut reader)?);
        }
        for _ in 0..reader.count(1)? {
            batch.gone.push(reader.index()?);
        }
        batch.samples = samples(&mut reader, base)?;
        let mut checked = 0u64;
        for _ in 0..reader.count(2)? {
            let at = Timestamp::from_nanos(base.wrapping_add(reader.signed()?));
            let mut runs = Vec::new();
            for _ in 0..reader.count(2)? {
                runs.push((reader.index()?, reader.index()?));
                checked += runs.last().map_or(0, |(_, length)| u64::from(*length));
            }
            if checked > MAX_CHECKED {
                return Err(Error::Number);
            }
            batch.checked.push(Checked { at, runs });
        }
        reader.end()?;
        Ok(batch)
    }
}

/// The bit beside the origin that marks a structured value.
const STRUCTURED: u8 = 4;

#[inline]
fn origin_code(sample: &IndexedSample) -> u8 {
    let origin = match sample.origin {
        Origin::Measured => 0,
        Origin::Predicted { .. } => 1,
        Origin::Unknown => 2,
    };
    origin | if matches!(sample.value, Content::Structured(_)) { STRUCTURED } else { 0 }
}

fn text_bytes(value: &Content) -> usize {
    match value {
        Content::Structured(structured) => structured.to_string().len(),
        Content::Bits(_) => 0,
    }
}

fn description(reader: &mut MessageReader<'_>) -> Result<Description, Error> {
    let index = reader.index()?;
    let topic = Topic::new(reader.text()?)?;
    let unit = Unit::new(reader.text()?)?;
    let kind = Kind::from_code(reader.byte()?).ok_or(Error::Number)?;
    let value_type = ValueType::from_code(reader.byte()?).ok_or(Error::Number)?;
    Ok(Description { index, topic, unit, kind, value_type })
}

/// Reads the columns of samples.
fn samples(reader: &mut MessageReader<'_>, base: i64) -> Result<Vec<IndexedSample>, Error> {
    let count = reader.count(1 + 1 + 8)?;
    let mut samples = Vec::with_capacity(count);
    let mut previous = 0i64;
    for _ in 0..count {
        previous = previous.wrapping_add(reader.signed()?);
        let index = u32::try_from(previous).map_err(|_| Error::Number)?;
        let (time, origin) = (Timestamp::default(), Origin::Measured);
        samples.push(IndexedSample { index, time, origin, value: Content::Bits(0) });
    }
    for sample in &mut samples {
        sample.time = Timestamp::from_nanos(base.wrapping_add(reader.signed()?));
    }
    let origins = match reader.byte()? {
        0 => &[][..],
        1 => reader.take(count)?,
        _ => return Err(Error::Number),
    };
    for (sample, origin) in samples.iter_mut().zip(origins) {
        sample.origin = match origin & !STRUCTURED {
            0 => Origin::Measured,
            1 => Origin::Predicted { bound: f64::from_bits(reader.u64()?) },
            2 => Origin::Unknown,
            _ => return Err(Error::Number),
        };
    }
    let bits = reader.take(8 * count)?;
    for (at, (sample, bits)) in samples.iter_mut().zip(bits.chunks_exact(8)).enumerate() {
        let bits = MessageReader::new(bits).u64()?;
        sample.value = match origins.get(at).is_some_and(|origin| origin & STRUCTURED != 0) {
            false => Content::Bits(bits),
            true => {
                let length = usize::try_from(bits).map_err(|_| Error::Number)?;
                let text = std::str::from_utf8(reader.take(length)?).map_err(|_| Error::Text)?;
                Content::Structured(Structured::from_json(text)?)
            }
        };
    }
    Ok(samples)
}
