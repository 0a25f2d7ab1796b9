//! The log: samples that are not sealed yet, in the order in which they were pushed. Each frame is either
//! complete or absent.
//!
//! # Layout
//! Little-endian.
//!
//! ```text
//! "SKHL" layout u32                  8 bytes
//! frame*: length u32, CRC-32 u32 of the records, then that many bytes of records
//! record: tag u8, then
//!   0     series: index u32, registered i64, kind u8, type u8, length u8 and unit, length u8 and topic
//!   1-3   number of a series: index u32, time i64, [bound f64 if 2], bits u64
//!   5-7   structured value: index u32, time i64, [bound f64 if 6], length u32 and JSON
//!         1 and 5 are measured, 2 and 6 predicted, 3 and 7 unknown
//! ```
//!
//! # Invariants
//! - One `write` writes a frame. A process that is killed before it leaves nothing of the frame. A process
//!   that is killed during it leaves a tail with a wrong length or checksum, which is cut off.
//! - The same log describes an index before the first sample with that index.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use skopos_model::{
    ByteReader, Kind, MAX_STRUCTURED_BYTES, Origin, Sample, Scalar, Structured, Timestamp, Topic,
    Unit, Value, ValueType,
};

use super::error::{Error, io_at};
use super::series::{OriginCode, Series};

/// The version of the layout.
const LAYOUT: u32 = 1;

const MAGIC: &[u8; 4] = b"SKHL";

const HEAD_BYTES: usize = 8;

/// Bytes of the length and the checksum before each frame.
const FRAME_HEAD_BYTES: usize = 8;

/// The longest record: a structured value and its other fields.
const MAX_RECORD_BYTES: usize = MAX_STRUCTURED_BYTES + 64;

/// The most bytes that wait to be written. Further samples are refused, and the caller counts them. This
/// is some seconds of all that a node can publish; it bounds the memory that a full disk can cost.
pub(super) const MAX_PENDING_BYTES: usize = 1 << 20;

/// The longest frame that a reader accepts.
const MAX_FRAME_BYTES: usize = MAX_PENDING_BYTES + MAX_RECORD_BYTES;

/// The bit beside the origin that marks a structured record.
const STRUCTURED: u8 = 4;

/// A record of a log.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    /// An index stands for this series from here on.
    Series(u32, Series),
    /// The series with this index has this sample.
    Sample(u32, Sample),
}

/// The writer of a log.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    /// Bytes of complete frames, with the head.
    length: u64,
    pending: Vec<u8>,
}

impl Log {
    /// Creates a log.
    pub(super) fn create(path: PathBuf) -> Result<Self, Error> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let mut file = file.map_err(io_at(&path, "the log cannot be made"))?;
        let head = [*MAGIC, LAYOUT.to_le_bytes()].concat();
        file.write_all(&head).map_err(io_at(&path, "the log cannot be written"))?;
        let length = HEAD_BYTES as u64;
        Ok(Self { path, file, length, pending: Vec::new() })
    }

    /// Opens an existing log, passes its records to `visit`, and cuts off a torn tail. Returns the length
    /// of that tail.
    pub(super) fn open(path: PathBuf, visit: &mut dyn FnMut(Entry)) -> Result<(Self, u64), Error> {
        let bytes = std::fs::read(&path).map_err(io_at(&path, "the log cannot be read"))?;
        let complete = read(&path, &bytes, visit)?;
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(io_at(&path, "the log cannot be opened"))?;
        let mut log = Self { length: complete as u64, pending: Vec::new(), file, path };
        if complete < HEAD_BYTES {
            // The process was killed before it had written the head.
            let head = [*MAGIC, LAYOUT.to_le_bytes()].concat();
            log.write_at_end(0, &head)?;
            log.length = HEAD_BYTES as u64;
        }
        log.cut()?;
        Ok((log, (bytes.len() - complete) as u64))
    }

    /// Returns the number of written bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Returns true if it has no records, written or pending.
    pub(super) fn is_empty(&self) -> bool {
        self.length <= HEAD_BYTES as u64 && self.pending.is_empty()
    }

    /// Describes an index. Returns false if there is no room before the next flush.
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
            // The model limits both to less than 256 bytes.
            out.push(text.len() as u8);
            out.extend(text.as_bytes());
        }
        true
    }

    /// Appends a sample. Returns false if there is no room before the next flush.
    pub(super) fn push(&mut self, index: u32, sample: &Sample) -> bool {
        if self.pending.len() >= MAX_PENDING_BYTES {
            return false;
        }
        let out = &mut self.pending;
        let is_structured = matches!(sample.value, Value::Structured(_));
        out.push(
            1 + OriginCode::of(sample.origin) as u8 + if is_structured { STRUCTURED } else { 0 },
        );
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

    /// Writes the pending records as one frame. After an error they stay pending.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + self.pending.len());
        frame.extend((self.pending.len() as u32).to_le_bytes());
        frame.extend(crc32fast::hash(&self.pending).to_le_bytes());
        frame.extend_from_slice(&self.pending);
        if let Err(e) = self.write_at_end(self.length, &frame) {
            // An incomplete frame would hide the frames after it.
            let _ = self.cut();
            return Err(e);
        }
        self.length += frame.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Syncs the written frames to disk, so that they survive a loss of power.
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

/// Passes the records of the complete frames to `visit`. Returns the number of bytes that are complete.
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
        return Err(Error::damaged(path, &"it does not begin like a log"));
    }
    if layout != LAYOUT {
        return Err(Error::Newer { path: path.to_path_buf(), found: layout, known: LAYOUT });
    }
    let mut types: Vec<Option<ValueType>> = Vec::new();
    let mut complete = HEAD_BYTES;
    while let Some(entries) = frame(&mut reader, &mut types) {
        entries.into_iter().for_each(&mut *visit);
        complete = bytes.len() - reader.remaining();
    }
    Ok(complete)
}

/// Reads the next frame, if it is complete.
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
    let origin = match OriginCode::from_code((tag - 1) & !STRUCTURED)? {
        OriginCode::Measured => Origin::Measured,
        OriginCode::Predicted => Origin::Predicted { bound: f64::from_bits(reader.u64()?) },
        OriginCode::Unknown => Origin::Unknown,
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

/// The most series of one log: as many as a node can have, and as many again for vertices that come and
/// go while the log is written. Bounds the memory that a reader reserves for a damaged log.
pub(super) const MAX_SERIES: usize = 1 << 20;

/// Reads a text after its length, which is one byte.
fn short_text<'a>(reader: &mut ByteReader<'a>) -> Option<&'a str> {
    let length = reader.u8()?;
    reader.text(length.into())
}
