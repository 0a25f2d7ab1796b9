//! The log: what was taken in and is not sealed yet. Samples are appended as they come, in frames
//! that are whole or not there.
//!
//! # Layout
//! Little-endian.
//!
//! ```text
//! "SKHL" layout u32                  8 bytes
//! frame*: length u32, CRC-32 u32, then that many bytes of records, which the CRC is of
//! record: tag u8, then
//!   0     series: index u32, registered i64, kind u8, type u8, length u8 and unit, length u8 and topic
//!   1-3   number of a series: index u32, time i64, [bound f64 if 2], bits u64
//!   5-7   structured value: index u32, time i64, [bound f64 if 6], length u32 and JSON
//!         1 and 5 are measured, 2 and 6 predicted, 3 and 7 unknown
//! ```
//!
//! # Invariants
//! - A frame is written by one `write`; a process killed before it leaves nothing of it, one killed
//!   inside it leaves a tail that its length or its sum gives away, and that is cut off.
//! - An index is described in the same log, before the first sample that names it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use skopos_model::{
    ByteReader, Kind, MAX_STRUCTURED_BYTES, Origin, Sample, Scalar, Structured, Timestamp, Topic,
    Unit, Value, ValueType,
};

use super::error::{Error, io_at};
use super::series::{From, Series};

/// The version of the layout.
const LAYOUT: u32 = 1;

const MAGIC: &[u8; 4] = b"SKHL";

const HEAD_BYTES: usize = 8;

/// Length and sum before each frame.
const FRAME_HEAD_BYTES: usize = 8;

/// The longest record: a structured value with what stands around it.
const MAX_RECORD_BYTES: usize = MAX_STRUCTURED_BYTES + 64;

/// What waits to be written at the most; more is refused, and counted by who pushes. Some seconds of
/// all that a node can publish; bounds the memory that a full disk can take.
pub(super) const MAX_PENDING_BYTES: usize = 1 << 20;

/// The longest frame that is believed.
const MAX_FRAME_BYTES: usize = MAX_PENDING_BYTES + MAX_RECORD_BYTES;

/// A structured record has this beside its origin.
const STRUCTURED: u8 = 4;

/// What a log says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    /// From here on an index stands for a series.
    Series(u32, Series),
    /// The series with this index has a sample.
    Sample(u32, Sample),
}

/// A log that is appended to.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    /// Bytes that are whole.
    length: u64,
    pending: Vec<u8>,
}

impl Log {
    /// A new one.
    pub(super) fn create(path: PathBuf) -> Result<Self, Error> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let mut file = file.map_err(io_at(&path, "the log cannot be made"))?;
        let head = [*MAGIC, LAYOUT.to_le_bytes()].concat();
        file.write_all(&head).map_err(io_at(&path, "the log cannot be written"))?;
        let length = HEAD_BYTES as u64;
        Ok(Self { path, file, length, pending: Vec::new() })
    }

    /// The one that is there: shows what it has, and cuts off what is torn. Returns how many bytes
    /// that were.
    pub(super) fn open(path: PathBuf, visit: &mut dyn FnMut(Entry)) -> Result<(Self, u64), Error> {
        let bytes = std::fs::read(&path).map_err(io_at(&path, "the log cannot be read"))?;
        let whole = read(&path, &bytes, visit)?;
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(io_at(&path, "the log cannot be opened"))?;
        let mut log = Self { length: whole as u64, pending: Vec::new(), file, path };
        if whole < HEAD_BYTES {
            // Killed before its head was written.
            let head = [*MAGIC, LAYOUT.to_le_bytes()].concat();
            log.write_at_end(0, &head)?;
            log.length = HEAD_BYTES as u64;
        }
        log.cut()?;
        Ok((log, (bytes.len() - whole) as u64))
    }

    /// Bytes that are written.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// True if it has nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.length <= HEAD_BYTES as u64 && self.pending.is_empty()
    }

    /// Says what an index stands for. False if there is no room before the next flush.
    pub(super) fn describe(&mut self, index: u32, series: &Series) -> bool {
        if self.pending.len() >= MAX_PENDING_BYTES {
            return false;
        }
        let out = &mut self.pending;
        out.push(0);
        out.extend(index.to_le_bytes());
        out.extend(series.since.as_nanos().to_le_bytes());
        out.extend([series.kind.code(), series.value_type.code()]);
        for text in [series.unit.as_str(), series.topic.as_str()] {
            // Both are shorter than a byte can say.
            out.push(text.len() as u8);
            out.extend(text.as_bytes());
        }
        true
    }

    /// Appends a sample. False if there is no room before the next flush.
    pub(super) fn push(&mut self, index: u32, sample: &Sample) -> bool {
        if self.pending.len() >= MAX_PENDING_BYTES {
            return false;
        }
        let out = &mut self.pending;
        let is_structured = matches!(sample.value, Value::Structured(_));
        out.push(1 + From::of(sample.origin) as u8 + if is_structured { STRUCTURED } else { 0 });
        out.extend(index.to_le_bytes());
        out.extend(sample.time.as_nanos().to_le_bytes());
        if let Origin::Predicted { bound } = sample.origin {
            out.extend(bound.to_bits().to_le_bytes());
        }
        match &sample.value {
            Value::F64(v) => out.extend(v.to_bits().to_le_bytes()),
            Value::I64(v) => out.extend(v.to_le_bytes()),
            Value::U64(v) => out.extend(v.to_le_bytes()),
            Value::Structured(structured) => {
                let text = structured.to_string();
                out.extend((text.len() as u32).to_le_bytes());
                out.extend(text.as_bytes());
            }
        }
        true
    }

    /// Writes what is pending as one frame. What cannot be written stays pending.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + self.pending.len());
        frame.extend((self.pending.len() as u32).to_le_bytes());
        frame.extend(crc32fast::hash(&self.pending).to_le_bytes());
        frame.extend_from_slice(&self.pending);
        if let Err(e) = self.write_at_end(self.length, &frame) {
            // Half a frame would hide whatever is written after it.
            let _ = self.cut();
            return Err(e);
        }
        self.length += frame.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Makes what is written outlive a loss of power.
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(io_at(&self.path, "the log cannot be synced"))
    }

    fn write_at_end(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all_at(bytes, at).map_err(io_at(&self.path, "the log cannot be written"))
    }

    fn cut(&self) -> Result<(), Error> {
        self.file.set_len(self.length).map_err(io_at(&self.path, "the log cannot be cut"))
    }
}

/// Shows what the bytes of a log say, as far as they are whole. Returns how far that is.
pub(super) fn read(
    path: &Path,
    bytes: &[u8],
    visit: &mut dyn FnMut(Entry),
) -> Result<usize, Error> {
    let mut reader = ByteReader::new(bytes);
    let (Some(magic), Some(layout)) = (reader.take(MAGIC.len()), reader.u32()) else {
        return Ok(0);
    };
    if magic != MAGIC {
        let why = "it does not begin as a log does".to_owned();
        return Err(Error::Damaged { path: path.to_path_buf(), why });
    }
    if layout != LAYOUT {
        return Err(Error::Newer { path: path.to_path_buf(), found: layout, known: LAYOUT });
    }
    let mut types: Vec<Option<ValueType>> = Vec::new();
    let mut whole = HEAD_BYTES;
    while let Some(entries) = frame(&mut reader, &mut types) {
        entries.into_iter().for_each(&mut *visit);
        whole = bytes.len() - reader.remaining();
    }
    Ok(whole)
}

/// The next frame, if it is whole.
fn frame(reader: &mut ByteReader<'_>, types: &mut Vec<Option<ValueType>>) -> Option<Vec<Entry>> {
    let length = usize::try_from(reader.u32()?).ok().filter(|l| *l <= MAX_FRAME_BYTES)?;
    let sum = reader.u32()?;
    let bytes = reader.take(length)?;
    if crc32fast::hash(bytes) != sum {
        return None;
    }
    let (mut records, mut entries) = (ByteReader::new(bytes), Vec::new());
    while !records.is_empty() {
        entries.push(record(&mut records, types)?);
    }
    Some(entries)
}

fn record(reader: &mut ByteReader<'_>, types: &mut Vec<Option<ValueType>>) -> Option<Entry> {
    let tag = reader.u8()?;
    let index = reader.u32()?;
    let time = Timestamp::from_nanos(reader.i64()?);
    if tag == 0 {
        let (kind, value_type) = (Kind::from_code(reader.u8()?)?, reader.u8()?);
        let value_type = ValueType::from_code(value_type)?;
        let unit = Unit::new(short_text(reader)?).ok()?;
        let topic = Topic::new(short_text(reader)?).ok()?;
        let at = usize::try_from(index).ok().filter(|at| *at < MAX_SERIES)?;
        if types.len() <= at {
            types.resize(at + 1, None);
        }
        types[at] = Some(value_type);
        let series = Series { topic, unit, kind, value_type, since: time };
        return Some(Entry::Series(index, series));
    }
    let value_type = (*types.get(usize::try_from(index).ok()?)?)?;
    let is_structured = (tag - 1) & STRUCTURED != 0;
    let origin = match From::from_code((tag - 1) & !STRUCTURED)? {
        From::Measured => Origin::Measured,
        From::Predicted => Origin::Predicted { bound: f64::from_bits(reader.u64()?) },
        From::Unknown => Origin::Unknown,
    };
    let value = match is_structured {
        false => Scalar::from_bits(value_type, reader.u64()?)?.into(),
        true => {
            let length = usize::try_from(reader.u32()?).ok()?;
            let text = reader.text(length)?;
            Structured::from_json(text).ok()?.into()
        }
    };
    Some(Entry::Sample(index, Sample { time, value, origin }))
}

/// Series of one log: what a node can have, and as many again for what comes and goes while it is
/// written. Bounds what a damaged log makes a reader reserve.
pub(super) const MAX_SERIES: usize = 1 << 20;

/// Reads a text after its length, which is one byte.
fn short_text<'a>(reader: &mut ByteReader<'a>) -> Option<&'a str> {
    let length = reader.u8()?;
    reader.text(length.into())
}
