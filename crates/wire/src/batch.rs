//! What a publisher tells at once: new topics, topics that went, samples, and looks that found nothing
//! new. A batch is one message, under 64 KB, numbered without gaps by its publisher.
//!
//! # Layout
//! Numbers are LEB128 (`varint`), signed ones zigzag; fixed ones little-endian.
//!
//! ```text
//! "SKB" layout        4 bytes
//! sequence            varint
//! sent                signed: when, in nanoseconds of UNIX time; times below are told from it
//! described           count; each: index, topic, unit, kind, type
//! gone                count; each: index
//! samples             count; then columns, each with an entry a sample:
//!   indices           signed, from the one before
//!   times             signed, from when it was sent
//!   origins           one byte 0 if all are measured numbers; else 1 and a byte each: 0 measured,
//!                     1 predicted, 2 unknown, and 4 more if the value is structured
//!   bounds            8 bytes for each predicted one
//!   bits              8 bytes each; of a structured one the length of its text
//!   texts             of the structured ones, one after the other
//! checked             count; each: signed time from when it was sent, count of runs; each run: index, length
//! ```
//!
//! Of which type a number is says the description of its vertex: a reader that does not know it has
//! missed a batch and asks for a snapshot, which is made of batches as well.

use skopos_model::{Kind, Origin, Scalar, Structured, Timestamp, Topic, Unit, Value, ValueType};

use crate::bytes::{MessageReader, put_signed, put_text, put_varint};
use crate::error::Error;

/// The version of the layout.
const LAYOUT: u8 = 1;

const MAGIC: [u8; 4] = [b'S', b'K', b'B', LAYOUT];

/// The longest batch: larger messages are cut in pieces by the transport, and lost far more often.
pub const MAX_BATCH_BYTES: usize = 60_000;

/// Vertices that one batch may say were looked at: two for each that a publisher can have. What a short
/// message makes a reader do is bounded by it.
const MAX_LOOKED_AT: u64 = 131_072;

/// What one publisher has at one index.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The number by which its samples name it.
    pub index: u32,
    /// Its topic.
    pub topic: Topic,
    /// The unit of its values.
    pub unit: Unit,
    /// How they move.
    pub kind: Kind,
    /// Their type.
    pub value_type: ValueType,
}

/// Some vertices were looked at at a time, and nothing was new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// When.
    pub at: Timestamp,
    /// Runs of indices: the first, how many.
    pub runs: Vec<(u32, u32)>,
}

/// A sample of the vertex with this index.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Which vertex.
    pub index: u32,
    /// When it held.
    pub time: Timestamp,
    /// Measured, predicted or unknown.
    pub origin: Origin,
    /// The value.
    pub value: Content,
}

/// Runs of indices that stay together when a batch is split: two thirds of a message.
const RUNS_OF_A_PART: usize = 4096;

/// A number of 32 bits, seven a byte.
const MOST_BYTES_OF_INDEX: usize = 5;

impl Description {
    fn most_bytes(&self) -> usize {
        20 + self.topic.as_str().len() + self.unit.as_str().len()
    }
}

impl Checked {
    fn most_bytes(&self) -> usize {
        20 + 2 * MOST_BYTES_OF_INDEX * self.runs.len()
    }
}

impl Told {
    fn most_bytes(&self) -> usize {
        36 + text_bytes(&self.value)
    }
}

/// A value whose type only its vertex tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The 64 bits of a number.
    Bits(u64),
    /// A record, list or text.
    Structured(Structured),
}

impl Content {
    /// The value, of a vertex of this type; `None` if it cannot be of that.
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
    fn from(value: &Value) -> Self {
        match value {
            Value::F64(v) => Self::Bits(v.to_bits()),
            Value::I64(v) => Self::Bits(v.cast_unsigned()),
            Value::U64(v) => Self::Bits(*v),
            Value::Structured(structured) => Self::Structured(structured.clone()),
        }
    }
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// One more than that of the batch before; of a snapshot that of the last batch that is in it.
    pub sequence: u64,
    /// When it was sent, by the clock of its publisher.
    pub sent_at: Timestamp,
    /// Vertices that are new.
    pub described: Vec<Description>,
    /// Vertices that are gone.
    pub gone: Vec<u32>,
    /// Samples, those of one vertex in the order of their times.
    pub samples: Vec<Told>,
    /// Looks that found nothing new.
    pub checked: Vec<Checked>,
}

impl Batch {
    /// About how long it is as a message: never less.
    pub fn most_bytes(&self) -> usize {
        let described: usize = self.described.iter().map(Description::most_bytes).sum();
        let samples: usize = self.samples.iter().map(Told::most_bytes).sum();
        let checked: usize = self.checked.iter().map(Checked::most_bytes).sum();
        64 + described + MOST_BYTES_OF_INDEX * self.gone.len() + samples + checked
    }

    /// As a message.
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
        let mut before = 0;
        for told in &self.samples {
            put_signed(out, i64::from(told.index) - before);
            before = i64::from(told.index);
        }
        for told in &self.samples {
            put_signed(out, told.time.as_nanos().wrapping_sub(base));
        }
        let is_mixed = self.samples.iter().any(|told| origin_code(told) != 0);
        out.push(u8::from(is_mixed));
        if is_mixed {
            out.extend(self.samples.iter().map(origin_code));
        }
        for told in &self.samples {
            if let Origin::Predicted { bound } = told.origin {
                out.extend(bound.to_bits().to_le_bytes());
            }
        }
        let mut texts = Vec::new();
        for told in &self.samples {
            let bits = match &told.value {
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

    /// In pieces that are no longer than a message may be, in an order in which each can be taken in:
    /// descriptions first. At least one.
    pub fn split(self) -> Vec<Self> {
        let fresh = || Self { sequence: self.sequence, sent_at: self.sent_at, ..Self::default() };
        let empty = Self::default().most_bytes();
        let mut parts = vec![fresh()];
        let mut room = MAX_BATCH_BYTES - empty;
        let mut part = |parts: &mut Vec<Self>, bytes: usize| {
            if bytes > room {
                parts.push(fresh());
                room = MAX_BATCH_BYTES - empty;
            }
            room = room.saturating_sub(bytes);
            parts.len() - 1
        };
        for description in self.described {
            let at = part(&mut parts, description.most_bytes());
            parts[at].described.push(description);
        }
        for told in self.samples {
            let at = part(&mut parts, told.most_bytes());
            parts[at].samples.push(told);
        }
        for Checked { at, runs } in self.checked {
            for runs in runs.chunks(RUNS_OF_A_PART) {
                let checked = Checked { at, runs: runs.to_vec() };
                let at = part(&mut parts, checked.most_bytes());
                parts[at].checked.push(checked);
            }
        }
        for index in self.gone {
            let at = part(&mut parts, MOST_BYTES_OF_INDEX);
            parts[at].gone.push(index);
        }
        parts
    }

    /// Reads a message.
    ///
    /// # Errors
    /// It is none of ours, or damaged.
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
        let mut looked_at = 0u64;
        for _ in 0..reader.count(2)? {
            let at = Timestamp::from_nanos(base.wrapping_add(reader.signed()?));
            let mut runs = Vec::new();
            for _ in 0..reader.count(2)? {
                runs.push((reader.index()?, reader.index()?));
                looked_at += runs.last().map_or(0, |(_, length)| u64::from(*length));
            }
            if looked_at > MAX_LOOKED_AT {
                return Err(Error::Number);
            }
            batch.checked.push(Checked { at, runs });
        }
        reader.end()?;
        Ok(batch)
    }
}

/// A structured value has this bit beside its origin.
const STRUCTURED: u8 = 4;

fn origin_code(told: &Told) -> u8 {
    let origin = match told.origin {
        Origin::Measured => 0,
        Origin::Predicted { .. } => 1,
        Origin::Unknown => 2,
    };
    origin | if matches!(told.value, Content::Structured(_)) { STRUCTURED } else { 0 }
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
fn samples(reader: &mut MessageReader<'_>, base: i64) -> Result<Vec<Told>, Error> {
    let count = reader.count(1 + 1 + 8)?;
    let mut told = Vec::with_capacity(count);
    let mut before = 0i64;
    for _ in 0..count {
        before = before.wrapping_add(reader.signed()?);
        let index = u32::try_from(before).map_err(|_| Error::Number)?;
        let (time, origin) = (Timestamp::default(), Origin::Measured);
        told.push(Told { index, time, origin, value: Content::Bits(0) });
    }
    for sample in &mut told {
        sample.time = Timestamp::from_nanos(base.wrapping_add(reader.signed()?));
    }
    let origins = match reader.byte()? {
        0 => &[][..],
        1 => reader.take(count)?,
        _ => return Err(Error::Number),
    };
    for (sample, origin) in told.iter_mut().zip(origins) {
        sample.origin = match origin & !STRUCTURED {
            0 => Origin::Measured,
            1 => Origin::Predicted { bound: f64::from_bits(reader.u64()?) },
            2 => Origin::Unknown,
            _ => return Err(Error::Number),
        };
    }
    let bits = reader.take(8 * count)?;
    for (at, (sample, bits)) in told.iter_mut().zip(bits.chunks_exact(8)).enumerate() {
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
    Ok(told)
}
