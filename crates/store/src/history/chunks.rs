//! The rows of a part, read in chunks.

use std::collections::VecDeque;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;

use super::column::Column;
use super::file::GroupReader;
use super::selection::Piece;
use super::series::Samples;
use crate::log::Error;
use crate::sealed::failed;

/// Rows that are read at once: so many that the cost of a chunk itself does not matter.
const CHUNK_ROWS: usize = 16_384;

/// Consecutive rows of one series in a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the stretch.
    pub stretch: usize,
    /// The first row.
    pub start: usize,
    /// Number of rows.
    pub rows: usize,
}

/// Rows of a part, with their series. Every wanted row is in a run; a row that is in no run is not wanted.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    /// The requested columns, and the column of times if times decide which rows are wanted. Other columns are
    /// empty.
    pub samples: Samples,
    /// Number of rows.
    pub rows: usize,
    /// The runs, in the order of the rows.
    pub runs: Vec<Run>,
}

/// Iterates over the wanted rows of one group.
#[derive(Debug)]
pub struct Chunks {
    source: Source,
    /// Rows that were not returned yet.
    wanted: VecDeque<Piece>,
    times: RangeInclusive<i64>,
    /// Rows that are read at once.
    at_once: usize,
}

enum Source {
    Memory(Arc<Samples>, Vec<Column>),
    File(PathBuf, GroupReader),
    /// Nothing is wanted, so the file is not opened.
    Nothing,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(samples, _) => write!(f, "Memory({} rows)", samples.len()),
            Self::File(path, _) => write!(f, "File({})", path.display()),
            Self::Nothing => f.write_str("Nothing"),
        }
    }
}

impl Chunks {
    /// Reads rows in memory.
    pub(super) fn of_memory(
        rows: &Arc<Samples>,
        columns: &[Column],
        wanted: Vec<Piece>,
        times: RangeInclusive<i64>,
    ) -> Self {
        let source = Source::Memory(rows.clone(), with_time(columns, &wanted));
        Self { source, wanted: wanted.into(), times, at_once: CHUNK_ROWS }
    }

    /// Reads a group of a file.
    pub(super) fn of_file(
        path: &Path,
        reader: GroupReader,
        wanted: Vec<Piece>,
        times: RangeInclusive<i64>,
    ) -> Self {
        let source = Source::File(path.into(), reader);
        Self { source, wanted: wanted.into(), times, at_once: CHUNK_ROWS }
    }

    /// Reads nothing.
    pub(super) fn nothing() -> Self {
        let (source, wanted, times) = (Source::Nothing, VecDeque::new(), 0..=0);
        Self { source, wanted, times, at_once: CHUNK_ROWS }
    }

    /// Reads so many rows at once, which is not zero: fewer take less memory.
    pub(super) fn at_once(self, rows: usize) -> Self {
        Self { at_once: rows, ..self }
    }

    fn read(&mut self) -> Result<Chunk, ParquetError> {
        let mut chunk = Chunk::default();
        while chunk.rows < self.at_once
            && let Some(piece) = self.wanted.front_mut()
        {
            let start = piece.rows.start;
            let rows = start..piece.rows.end.min(start + self.at_once - chunk.rows);
            piece.rows.start = rows.end;
            let count = rows.len();
            match &mut self.source {
                Source::Memory(all, columns) => {
                    chunk.samples.append_rows(all, rows, chunk.rows, columns);
                }
                Source::File(_, reader) => reader.read(rows, &mut chunk.samples, chunk.rows)?,
                Source::Nothing => {}
            }
            chunk.runs.extend(run(&chunk, count, piece, &self.times));
            chunk.rows += count;
            if piece.rows.is_empty() {
                self.wanted.pop_front();
            }
        }
        Ok(chunk)
    }
}

/// Returns the columns once each, with the column of times if times decide which rows are wanted.
pub(super) fn with_time(columns: &[Column], wanted: &[Piece]) -> Vec<Column> {
    let is_by_time = wanted.iter().any(|piece| !piece.is_whole);
    let is_read =
        |column: &Column| columns.contains(column) || (is_by_time && *column == Column::Time);
    Column::ALL.into_iter().filter(is_read).collect()
}

impl Iterator for Chunks {
    type Item = Result<Chunk, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.wanted.is_empty() {
            return None;
        }
        let chunk = self.read();
        if chunk.is_err() {
            self.wanted.clear();
        }
        Some(chunk.map_err(|e| match &self.source {
            Source::File(path, _) => failed(path, e),
            _ => failed(Path::new(""), e),
        }))
    }
}

/// Returns the rows with wanted times among the last `count` rows. They are consecutive, because times ascend.
fn run(chunk: &Chunk, count: usize, piece: &Piece, times: &RangeInclusive<i64>) -> Option<Run> {
    let mut rows = chunk.rows..chunk.rows + count;
    if !piece.is_whole {
        let all = &chunk.samples.times[rows.clone()];
        let from = all.partition_point(|t| t < times.start());
        let to = all.partition_point(|t| t <= times.end() && *t < piece.below);
        rows = rows.start + from..rows.start + to.max(from);
    }
    let run = Run { stretch: piece.stretch, start: rows.start, rows: rows.len() };
    (run.rows > 0).then_some(run)
}
