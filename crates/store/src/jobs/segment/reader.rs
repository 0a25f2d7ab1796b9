//! Reads segments.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::Length as _;
use skopos_model::Timestamp;
use skopos_model::job::{JobId, Kind};

use super::columns::{LAYOUT, PARTS_KEY, SEGMENT_KEY, is_schema};
use super::group::{Group, Source, Wanted};
use super::info::{self, Head, PartInfo};
use super::name::SegmentName;
use crate::jobs::part::{JobPart, StoredRecord};
use crate::log::{Disk, Error, OsDisk, io_at};
use crate::sealed::{self, Blocks, failed};

/// A segment that is open to be read. Its file may be removed meanwhile.
pub struct Segment {
    path: PathBuf,
    bytes: u64,
    head: Head,
    metadata: ParquetMetaData,
    parts: Vec<PartInfo>,
    /// The rows of each group.
    groups: Vec<Range<u64>>,
    blocks: Arc<Blocks>,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({}, {} parts)", self.path.display(), self.parts.len())
    }
}

/// Reads parts of segments, one after the other. Parts that come in the order of their rows cost each page of their segment once.
#[derive(Default)]
pub struct PartReader {
    open: Option<(Arc<Segment>, Group)>,
}

impl fmt::Debug for PartReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segment = self.open.as_ref().map(|(segment, _)| segment);
        f.debug_struct("PartReader").field("segment", &segment).finish_non_exhaustive()
    }
}

impl PartReader {
    /// Reads the records of a part whose kind `is_wanted`, in the order of their arrival. Every byte that is read is checked; if
    /// all records are wanted, so is the whole content. Pages without a wanted record are not read.
    ///
    /// # Errors
    /// The part is damaged, or it cannot be read.
    pub fn read(
        &mut self,
        segment: &Arc<Segment>,
        part: &PartInfo,
        is_wanted: &dyn Fn(Kind) -> bool,
    ) -> Result<Vec<StoredRecord>, Error> {
        let open = self.open.take().filter(|(open, _)| Arc::ptr_eq(open, segment));
        let mut group = open.map(|(_, group)| group);
        let records = segment.read_kinds(&mut group, part, is_wanted)?;
        self.open = group.map(|group| (segment.clone(), group));
        Ok(records)
    }
}

impl Segment {
    /// Opens a segment, and checks its tail.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or a later version of Skopos wrote it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_on(&OsDisk, path)
    }

    pub(in crate::jobs) fn open_on(disk: &dyn Disk, path: &Path) -> Result<Self, Error> {
        let damaged = |e: ParquetError| Error::damaged(path, &e);
        let because = |why: &str| Error::damaged(path, &why);
        let name = path.file_name().and_then(|name| name.to_str()).and_then(SegmentName::parse);
        let name = name.ok_or_else(|| because("its name is not that of a segment"))?;
        let file = disk.open_to_read(path).map_err(io_at(path, "it cannot be opened"))?;
        let tail = sealed::tail(&*file, (name.tail, name.sum), &name.covered());
        let tail = tail.map_err(|e| failed(path, e.into()))?;
        let tail = tail.ok_or_else(|| because("the checksum of its metadata is wrong"))?;
        let reader = ParquetMetaDataReader::new();
        let reader = reader.with_page_index_policy(PageIndexPolicy::Optional);
        let metadata = reader.parse_and_finish(&tail).map_err(damaged)?;
        let stored = |key: &str| {
            let pairs = metadata.file_metadata().key_value_metadata()?;
            pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
        };
        let head = stored(SEGMENT_KEY).and_then(|head| serde_json::from_str::<Head>(head).ok());
        let head = head.ok_or_else(|| because("it does not have the metadata of a segment"))?;
        if head.layout > LAYOUT {
            let path = path.to_path_buf();
            return Err(Error::Newer { path, found: head.layout, known: LAYOUT });
        }
        if !is_schema(metadata.file_metadata().schema_descr()).map_err(damaged)? {
            return Err(because("its columns are not those of a segment"));
        }
        let parts = stored(PARTS_KEY).and_then(info::read);
        let parts = parts.ok_or_else(|| because("its list of parts is damaged"))?;
        let sums = stored(sealed::KEY).and_then(|sums| Blocks::new(file.into(), sums, tail.at));
        let blocks = Arc::new(sums.ok_or_else(|| because("its list of checksums is damaged"))?);
        let (mut groups, mut rows) = (Vec::new(), 0u64);
        for group in metadata.row_groups() {
            let count = u64::try_from(group.num_rows()).unwrap_or(0);
            groups.push(rows..rows.saturating_add(count));
            rows = rows.saturating_add(count);
        }
        if parts.last().map_or(0, |last| last.rows.end) != rows {
            return Err(because("its rows differ from its list of parts"));
        }
        let (path, bytes) = (path.to_path_buf(), tail.len());
        Ok(Self { path, bytes, head, metadata, parts, groups, blocks })
    }

    /// Returns the name of the file.
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the parts, in the order of the rows: by job, then by number.
    pub fn parts(&self) -> &[PartInfo] {
        &self.parts
    }

    /// Returns the number of records of each kind.
    pub fn kinds(&self) -> BTreeMap<String, u64> {
        let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
        for (kind, count) in self.parts.iter().flat_map(|part| &part.kinds) {
            match kinds.get_mut(kind) {
                Some(sum) => *sum = sum.saturating_add(*count),
                None => {
                    kinds.insert(kind.clone(), *count);
                }
            }
        }
        kinds
    }

    /// Returns the number of row groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns the time at which the segment was sealed.
    pub fn sealed(&self) -> Timestamp {
        Timestamp::from_nanos(self.head.sealed)
    }

    /// Returns a part's description, if the segment has the part.
    pub fn part(&self, id: &JobId, number: u32) -> Option<&PartInfo> {
        let at = self.parts.binary_search_by(|part| part.key().cmp(&(id, number)));
        self.parts.get(at.ok()?)
    }

    /// Reads the records of a part, in the order of their arrival; nothing if the segment does not have the part. Every
    /// byte that is read is checked, and so is the whole content.
    ///
    /// # Errors
    /// The part is damaged, or it cannot be read.
    pub fn read(&self, id: &JobId, number: u32) -> Result<Vec<StoredRecord>, Error> {
        match self.part(id, number) {
            Some(part) => Ok(self.read_part(part)?.records),
            None => Ok(Vec::new()),
        }
    }

    /// Reads a part of this segment, and checks all of its bytes.
    ///
    /// # Errors
    /// The part is damaged, or it cannot be read.
    pub fn read_part(&self, part: &PartInfo) -> Result<JobPart, Error> {
        let (id, number, marks) = (part.id.clone(), part.number, part.marks.clone());
        Ok(JobPart { id, number, records: self.read_all(&mut None, part)?, marks })
    }

    /// Reads the records of a part, and compares their sum. `open` is the group that was read last.
    fn read_all(
        &self,
        open: &mut Option<Group>,
        part: &PartInfo,
    ) -> Result<Vec<StoredRecord>, Error> {
        let rows = self.rows(open, part, (None, &part.rows)).map_err(|e| failed(&self.path, e))?;
        let rows = in_order(rows);
        let is_whole = rows.iter().zip(0u32..).all(|((position, _), at)| *position == at);
        let records: Vec<StoredRecord> = rows.into_iter().map(|(_, record)| record).collect();
        if !is_whole || info::sum(records.iter(), &part.marks) != part.sum {
            return Err(self.other_records(part));
        }
        Ok(records)
    }

    /// Reads the records of a part whose kind `is_wanted`.
    fn read_kinds(
        &self,
        open: &mut Option<Group>,
        part: &PartInfo,
        is_wanted: &dyn Fn(Kind) -> bool,
    ) -> Result<Vec<StoredRecord>, Error> {
        let runs = part.rows_of(is_wanted).ok_or_else(|| self.other_records(part))?;
        let wanted: u64 = runs.iter().map(|(_, rows)| rows.end - rows.start).sum();
        if wanted == part.rows.end - part.rows.start {
            return self.read_all(open, part);
        }
        let mut records = Vec::new();
        for (kind, rows) in &runs {
            let read = self.rows(open, part, (Some(*kind), rows));
            records.extend(read.map_err(|e| failed(&self.path, e))?);
        }
        Ok(in_order(records).into_iter().map(|(_, record)| record).collect())
    }

    fn other_records(&self, part: &PartInfo) -> Error {
        let why = format!("part {} of the job {} has other records", part.number, part.id);
        Error::damaged(&self.path, &why)
    }

    /// Returns the records of some rows of a part, each with its position. If the rows have one kind, it is given.
    fn rows(
        &self,
        open: &mut Option<Group>,
        part: &PartInfo,
        (kind, wanted): (Option<Kind>, &Range<u64>),
    ) -> Result<Vec<(u32, StoredRecord)>, ParquetError> {
        let mut records = Vec::new();
        let source = Source { blocks: &self.blocks, metadata: &self.metadata };
        let first = self.groups.partition_point(|rows| rows.end <= wanted.start);
        for (number, of) in self.groups.iter().enumerate().skip(first) {
            if of.start >= wanted.end {
                break;
            }
            let (from, to) = (wanted.start.max(of.start), wanted.end.min(of.end));
            let rows = (from - of.start) as usize..(to - of.start) as usize;
            // After an error, the group is not read any more.
            let group = open.take().filter(|group| group.number == number);
            let mut group = group.unwrap_or_else(|| Group::new(number));
            records.extend(group.read(source, &Wanted { id: &part.id, rows, kind })?);
            *open = Some(group);
        }
        Ok(records)
    }

    /// Compares the checksums of the bytes that were written as this file, but for its tail.
    pub(super) fn compare(&self, sums: &[u32]) -> Result<(), Error> {
        self.blocks.compare(sums).map_err(|e| failed(&self.path, e))
    }

    /// Checks every byte of the file that [`open`](Self::open) did not.
    ///
    /// # Errors
    /// The file is damaged, or it cannot be read.
    pub fn verify(&self) -> Result<(), Error> {
        self.blocks.check().map_err(|e| failed(&self.path, e))
    }
}

/// Sorts records by their positions.
fn in_order(mut records: Vec<(u32, StoredRecord)>) -> Vec<(u32, StoredRecord)> {
    records.sort_unstable_by_key(|(position, _)| *position);
    records
}
