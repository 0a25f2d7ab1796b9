//! Writes segments, which are complete or absent.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;
use skopos_model::Timestamp;
use skopos_model::job::{JobRecord, Kind};

use super::columns::{PARTS_KEY, SEGMENT_KEY, properties, schema};
use super::info::{self, Head, PartInfo, sum_of};
use super::name::SegmentName;
use super::rows::{Names, Rows};
use crate::jobs::part::JobPart;
use crate::log::{Disk, Error, OsDisk, io_at};
use crate::sealed::{self, SummedWriter, unwritten};

/// Bytes of contents of a row group. This bounds the memory of a writer to some tens of megabytes, and gives a segment
/// of 500 jobs about seven groups, which DuckDB reads side by side.
const GROUP_BYTES: usize = 8 << 20;

/// Rows of a row group, if contents are short.
const GROUP_ROWS: usize = 131_072;

/// A finished segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The name of the file.
    pub name: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// The parts, in the order of the rows.
    pub parts: Vec<PartInfo>,
}

/// Writes a segment, part by part, in the order of the jobs' ids.
pub struct SegmentWriter {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    temporary: PathBuf,
    number: u64,
    head: Head,
    writer: SerializedFileWriter<SummedWriter>,
    parts: Vec<PartInfo>,
    rows: Rows,
    /// Bytes of all contents.
    bytes: u64,
}

impl fmt::Debug for SegmentWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentWriter({}, {} parts)", self.temporary.display(), self.parts.len())
    }
}

impl SegmentWriter {
    /// Begins a segment in a folder. `sealed` is the time of now.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn new(folder: &Path, number: u64, sealed: Timestamp) -> Result<Self, Error> {
        Self::on(Arc::new(OsDisk), folder, number, sealed)
    }

    pub(in crate::jobs) fn on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        number: u64,
        sealed: Timestamp,
    ) -> Result<Self, Error> {
        let temporary = folder.join(SegmentName::temporary(number));
        match disk.remove(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(io_at(&temporary, "it cannot be removed")(e));
            }
            _ => {}
        }
        let file = disk.create(&temporary).map_err(io_at(&temporary, "it cannot be made"))?;
        let (properties, file) = (Arc::new(properties()), SummedWriter::new(file));
        let writer = schema().and_then(|it| SerializedFileWriter::new(file, it, properties));
        Ok(Self {
            writer: writer.map_err(|e| unwritten(&temporary, e))?,
            disk,
            folder: folder.to_path_buf(),
            temporary,
            number,
            head: Head::new(sealed.as_nanos()),
            parts: Vec::new(),
            rows: Rows::default(),
            bytes: 0,
        })
    }

    /// Returns the number of parts so far.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Returns the bytes of the contents so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a part. The parts of a segment ascend by id and number, and each has records of its job alone.
    ///
    /// # Errors
    /// The part is refused, or the file cannot be written.
    pub fn push(&mut self, part: &JobPart) -> Result<(), Error> {
        let refused = |why: &str| {
            let (id, number) = (&part.id, part.number);
            Error::refused(&self.temporary, &format!("part {number} of the job {id} {why}"))
        };
        if self.parts.last().is_some_and(|last| last.key() >= (&part.id, part.number)) {
            return Err(refused("does not come after the part before it"));
        }
        let records: Option<Vec<JobRecord<'_>>> = part.records.iter().map(|r| r.get()).collect();
        let records = records.ok_or_else(|| refused("has a record that is not one"))?;
        if records.is_empty() || u32::try_from(records.len()).is_err() {
            return Err(refused("has no records, or too many"));
        }
        let (job, generation) = (part.id.job(), part.id.generation());
        if records.iter().any(|record| (record.job, record.generation) != (job, generation)) {
            return Err(refused("has a record of another job"));
        }
        self.parts.push(describe(part, &records, self.rows_before()));
        let names = Names::new(&part.id, part.number);
        for position in sorted(&records) {
            let record = &records[position as usize];
            self.rows.push(&names, position, record);
            self.bytes += record.content.len() as u64;
            if self.rows.bytes() >= GROUP_BYTES || self.rows.len() >= GROUP_ROWS {
                self.write()?;
            }
        }
        Ok(())
    }

    /// Gives the segment up, and removes its unfinished file.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn abandon(self) -> Result<(), Error> {
        let Self { disk, temporary, writer, .. } = self;
        drop(writer);
        disk.remove(&temporary).map_err(io_at(&temporary, "it cannot be removed"))
    }

    /// Returns the last part so far.
    pub fn last(&self) -> Option<&PartInfo> {
        self.parts.last()
    }

    fn rows_before(&self) -> u64 {
        self.parts.last().map_or(0, |last| last.rows.end)
    }

    /// Writes the rows that wait as a row group.
    fn write(&mut self) -> Result<(), Error> {
        let rows = std::mem::take(&mut self.rows);
        let written = self.writer.next_row_group().and_then(|mut group| {
            rows.write(&mut group)?;
            group.close()
        });
        written.map(drop).map_err(|e| unwritten(&self.temporary, e))
    }

    /// Makes the segment durable, and gives it its name.
    ///
    /// # Errors
    /// The segment has no parts, or it cannot be written. Whether it exists is not known if the folder cannot be synced;
    /// in every other case it does not.
    pub fn finish(mut self) -> Result<SegmentInfo, Error> {
        if self.parts.is_empty() {
            return Err(Error::refused(&self.temporary, &"a segment without parts"));
        }
        if self.rows.len() > 0 {
            self.write()?;
        }
        let Self { disk, folder, temporary, number, head, mut writer, parts, .. } = self;
        let failed = || io_at(&temporary, "it cannot be written");
        writer.flush().map_err(failed())?;
        let sums = writer.inner_mut().begin_tail();
        let list = info::write(&parts).map_err(|e| failed()(e.into()))?;
        let head = serde_json::to_string(&head).map_err(|e| failed()(e.into()))?;
        for (key, value) in [(SEGMENT_KEY, head), (PARTS_KEY, list), (sealed::KEY, sums)] {
            writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        let file = writer.into_inner().map_err(|e| unwritten(&temporary, e))?;
        // Names have no signs.
        let from = parts.iter().map(|part| part.times.0).min().unwrap_or(0).max(0);
        let to = parts.iter().map(|part| part.times.1).max().unwrap_or(0).max(0);
        let mut name = SegmentName { number, from, to, tail: 0, sum: 0 };
        let bytes = file.length();
        let summed = file.finish(|tail| SegmentName { tail, ..name.clone() }.covered());
        (name.tail, name.sum) = summed.map_err(failed())?;
        let name = name.file_name();
        let path = folder.join(&name);
        disk.rename(&temporary, &path).map_err(io_at(&path, "it cannot get its name"))?;
        disk.sync_folder(&folder).map_err(io_at(&folder, "the folder cannot be synced"))?;
        Ok(SegmentInfo { name, bytes, parts })
    }
}

fn describe(part: &JobPart, records: &[JobRecord<'_>], start: u64) -> PartInfo {
    let mut counts = [0; Kind::ALL.len()];
    let mut times = (i64::MAX, i64::MIN);
    for record in records {
        counts[record.kind as usize] += 1;
        let at = record.time.as_nanos();
        times = (times.0.min(at), times.1.max(at));
    }
    let kinds = Kind::ALL.into_iter().map(|kind| (kind.name().to_owned(), counts[kind as usize]));
    PartInfo {
        id: part.id.clone(),
        number: part.number,
        rows: start..start + records.len() as u64,
        times,
        marks: part.marks.clone(),
        kinds: kinds.filter(|(_, count)| *count > 0).collect::<BTreeMap<_, _>>(),
        sum: sum_of(part),
    }
}

/// Returns the positions of records in the order of a segment: by kind, schema, node and time, then by arrival.
fn sorted(records: &[JobRecord<'_>]) -> Vec<u32> {
    let mut keyed: Vec<_> = Vec::with_capacity(records.len());
    for (record, position) in records.iter().zip(0u32..) {
        let schema = record.sample().map_or("", |(schema, _)| schema);
        keyed.push((record.kind, schema, record.node, record.time, position));
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|(.., position)| position).collect()
}
