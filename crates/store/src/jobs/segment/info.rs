//! The list of parts in the metadata of a segment.

use std::collections::BTreeMap;
use std::ops::Range;

use crc32fast::Hasher;
use serde::{Deserialize, Serialize};
use skopos_model::job::{JobId, Kind};

use super::columns::LAYOUT;
use crate::jobs::part::{JobPart, Mark, StoredRecord};

/// A part of a segment, as the metadata of the segment describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartInfo {
    /// The job.
    pub id: JobId,
    /// The number of the part in its job.
    pub number: u32,
    /// Its rows in the segment.
    pub rows: Range<u64>,
    /// Times of the first and the last record, in nanoseconds of UNIX time.
    pub times: (i64, i64),
    /// The last record of each producer.
    pub marks: Vec<Mark>,
    /// Number of records of each kind.
    pub kinds: BTreeMap<String, u64>,
    /// CRC-32 of the records in the order of their arrival, and of the marks.
    pub sum: u32,
}

/// The line of a part. The names are those of the file, whose page is `docs/reference/job-segment.md`.
#[derive(Serialize, Deserialize)]
struct Line {
    job: String,
    generation: u32,
    part: u32,
    first_row: u64,
    rows: u64,
    from: i64,
    to: i64,
    kinds: BTreeMap<String, u64>,
    marks: Vec<(String, i64, i64)>,
    crc: u32,
}

/// The metadata of a segment as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) layout: u32,
    /// The time at which it was sealed, in nanoseconds of UNIX time.
    pub(super) sealed: i64,
}

impl Head {
    pub(super) fn new(sealed: i64) -> Self {
        Self { layout: LAYOUT, sealed }
    }
}

impl PartInfo {
    /// Returns the place of the part in the order of a segment.
    pub fn key(&self) -> (&JobId, u32) {
        (&self.id, self.number)
    }

    /// Returns the rows of each kind that `is_wanted`, in their order; `None` if the numbers of records are not those of the rows.
    pub(super) fn rows_of(
        &self,
        is_wanted: &dyn Fn(Kind) -> bool,
    ) -> Option<Vec<(Kind, Range<u64>)>> {
        let (mut next, mut runs) = (self.rows.start, Vec::new());
        // The rows of a part are sorted by kind.
        for kind in Kind::ALL {
            let count = self.kinds.get(kind.name()).copied().unwrap_or(0);
            let rows = next..next.checked_add(count)?;
            next = rows.end;
            if count > 0 && is_wanted(kind) {
                runs.push((kind, rows));
            }
        }
        (next == self.rows.end).then_some(runs)
    }

    fn line(&self) -> Line {
        let mark = |mark: &Mark| (mark.producer.clone(), mark.epoch, mark.sequence);
        Line {
            job: self.id.job().to_owned(),
            generation: self.id.generation(),
            part: self.number,
            first_row: self.rows.start,
            rows: self.rows.end - self.rows.start,
            from: self.times.0,
            to: self.times.1,
            kinds: self.kinds.clone(),
            marks: self.marks.iter().map(mark).collect(),
            crc: self.sum,
        }
    }

    fn of_line(line: Line) -> Option<Self> {
        let mark = |(producer, epoch, sequence)| Mark { producer, epoch, sequence };
        Some(Self {
            id: JobId::new(line.job, line.generation).ok()?,
            number: line.part,
            rows: line.first_row..line.first_row.checked_add(line.rows)?,
            times: (line.from, line.to),
            marks: line.marks.into_iter().map(mark).collect(),
            kinds: line.kinds,
            sum: line.crc,
        })
    }
}

/// Writes the list: a line of JSON for each part.
pub(super) fn write(parts: &[PartInfo]) -> serde_json::Result<String> {
    let mut lines = String::new();
    for part in parts {
        lines.push_str(&serde_json::to_string(&part.line())?);
        lines.push('\n');
    }
    Ok(lines)
}

/// Reads the list; `None` if it is damaged: parts are sorted, and their rows follow each other.
pub(super) fn read(lines: &str) -> Option<Vec<PartInfo>> {
    let mut parts: Vec<PartInfo> = Vec::new();
    for line in lines.lines() {
        let part = PartInfo::of_line(serde_json::from_str(line).ok()?)?;
        let is_next = match parts.last() {
            Some(last) => last.key() < part.key() && last.rows.end == part.rows.start,
            None => part.rows.start == 0,
        };
        if !is_next || part.rows.is_empty() {
            return None;
        }
        parts.push(part);
    }
    Some(parts)
}

/// Returns the checksum of the content of a part.
pub(in crate::jobs) fn sum_of(part: &JobPart) -> u32 {
    sum(part.records.iter(), &part.marks)
}

/// Returns the checksum of records in the order of their arrival, and of marks.
pub(super) fn sum<'r>(records: impl Iterator<Item = &'r StoredRecord>, marks: &[Mark]) -> u32 {
    let mut hasher = Hasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    records.for_each(|record| add(record.as_bytes()));
    for mark in marks {
        add(mark.producer.as_bytes());
        add(&[mark.epoch.to_le_bytes(), mark.sequence.to_le_bytes()].concat());
    }
    hasher.finalize()
}
