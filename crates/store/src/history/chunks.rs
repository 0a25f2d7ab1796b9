//! The rows of a part, read in chunks.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray as _;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::ArrowError;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection,
};

use super::block::{Column, TEXT_COLUMNS};
use super::error::{Error, io_at};
use super::selection::Piece;

/// Rows that are read at once: so many that the cost of a batch itself does not matter.
const BATCH_ROWS: usize = 16_384;

/// Consecutive rows of one series in a batch.
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
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The requested columns; the column of times may follow them.
    pub batch: RecordBatch,
    /// The runs, in the order of the rows.
    pub runs: Vec<Run>,
}

/// Iterates over the wanted rows of one group.
#[derive(Debug)]
pub struct Chunks {
    source: Rows,
    /// Rows that were not returned yet, relative to the next row.
    wanted: VecDeque<Piece>,
    times: RangeInclusive<i64>,
    /// Index of the column of times, if the times decide which rows are wanted.
    time: Option<usize>,
}

#[derive(Debug)]
enum Rows {
    Nothing,
    Memory(RecordBatch),
    File { path: PathBuf, reader: Box<ParquetRecordBatchReader>, columns: Vec<Column> },
}

impl Chunks {
    /// Reads rows in memory.
    pub(super) fn of_memory(
        rows: &RecordBatch,
        columns: &[Column],
        wanted: Vec<Piece>,
        times: RangeInclusive<i64>,
    ) -> Result<Self, Error> {
        let (columns, time) = with_time(columns, &wanted);
        let rows = project(rows, &columns).map_err(|e| Error::damaged(Path::new(""), &e))?;
        Ok(Self { source: Rows::Memory(rows), wanted: wanted.into(), times, time })
    }

    /// Reads a group of a file, given by its number and its count of rows.
    pub(super) fn of_file(
        path: &Path,
        metadata: &ArrowReaderMetadata,
        group: (usize, usize),
        columns: &[Column],
        wanted: Vec<Piece>,
        times: RangeInclusive<i64>,
    ) -> Result<Self, Error> {
        let (columns, time) = with_time(columns, &wanted);
        let source = Rows::of_file(path, metadata, group, columns, &wanted)?;
        Ok(Self { source, wanted: wanted.into(), times, time })
    }
}

/// Adds the column of times if they decide which rows are wanted. Returns its index too in this case.
fn with_time(columns: &[Column], wanted: &[Piece]) -> (Vec<Column>, Option<usize>) {
    let mut columns = columns.to_vec();
    if wanted.iter().all(|piece| piece.is_whole) {
        return (columns, None);
    }
    let at = columns.iter().position(|column| *column == Column::Time);
    let at = at.unwrap_or_else(|| {
        columns.push(Column::Time);
        columns.len() - 1
    });
    (columns, Some(at))
}

impl Rows {
    fn of_file(
        path: &Path,
        metadata: &ArrowReaderMetadata,
        (group, count): (usize, usize),
        columns: Vec<Column>,
        wanted: &[Piece],
    ) -> Result<Self, Error> {
        if wanted.is_empty() {
            return Ok(Self::Nothing);
        }
        let file = File::open(path).map_err(io_at(path, "it cannot be opened"))?;
        let leaves = columns.iter().map(|c| TEXT_COLUMNS + *c as usize);
        let schema = metadata.metadata().file_metadata().schema_descr();
        let mask = ProjectionMask::leaves(schema, leaves);
        let mut builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone())
                .with_row_groups(vec![group])
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS);
        if wanted.iter().map(|piece| piece.rows.len()).sum::<usize>() < count {
            let ranges = wanted.iter().map(|piece| piece.rows.clone());
            builder =
                builder.with_row_selection(RowSelection::from_consecutive_ranges(ranges, count));
        }
        let reader = builder.build().map_err(|e| Error::damaged(path, &e))?;
        Ok(Self::File { path: path.to_path_buf(), reader: Box::new(reader), columns })
    }
}

impl Iterator for Chunks {
    type Item = Result<Chunk, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match &mut self.source {
            Rows::Memory(rows) => {
                // From the next wanted row on, with the unwanted rows between.
                let start = self.wanted.front()?.rows.start;
                let batch = rows.slice(start, BATCH_ROWS.min(rows.num_rows() - start));
                let mut runs = Vec::new();
                while let Some(piece) = self.wanted.front_mut() {
                    let end = piece.rows.end.min(start + batch.num_rows());
                    if piece.rows.start >= end {
                        break;
                    }
                    let rows = piece.rows.start - start..end - start;
                    runs.extend(run(&batch, self.time, &self.times, piece, rows));
                    piece.rows.start = end;
                    if piece.rows.is_empty() {
                        self.wanted.pop_front();
                    }
                }
                return Some(Ok(Chunk { batch, runs }));
            }
            Rows::Nothing => return None,
            Rows::File { path, reader, columns } => match reader.next()? {
                Ok(batch) => ordered(&batch, columns).map_err(|e| Error::damaged(path, &e)),
                Err(e) => Err(Error::damaged(path, &e)),
            },
        };
        let batch = match batch {
            Ok(batch) => batch,
            Err(e) => return Some(Err(e)),
        };
        // The reader skips unwanted rows, so the wanted ones are consecutive in its batches.
        let (mut start, mut runs) = (0, Vec::new());
        while start < batch.num_rows() {
            let Some(piece) = self.wanted.front_mut() else { break };
            let rows = piece.rows.len().min(batch.num_rows() - start);
            runs.extend(run(&batch, self.time, &self.times, piece, start..start + rows));
            start += rows;
            piece.rows.start += rows;
            if piece.rows.is_empty() {
                self.wanted.pop_front();
            }
        }
        Some(Ok(Chunk { batch, runs }))
    }
}

/// Returns the rows of a range with wanted times. They are consecutive, because times ascend.
fn run(
    batch: &RecordBatch,
    time: Option<usize>,
    times: &RangeInclusive<i64>,
    piece: &Piece,
    rows: Range<usize>,
) -> Option<Run> {
    let mut rows = rows;
    if !piece.is_whole
        && let Some(at) = time
    {
        let all = batch.column(at).as_primitive::<TimestampNanosecondType>().values();
        let slice = &all[rows.clone()];
        let from = slice.partition_point(|t| t < times.start());
        let to = slice.partition_point(|t| t <= times.end() && *t < piece.below);
        rows = rows.start + from..rows.start + to.max(from);
    }
    let run = Run { stretch: piece.stretch, start: rows.start, rows: rows.len() };
    (run.rows > 0).then_some(run)
}

/// Returns the columns in the requested order; the file has another one.
fn ordered(batch: &RecordBatch, columns: &[Column]) -> Result<RecordBatch, ArrowError> {
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|at| columns[*at] as usize);
    let mut places = vec![0; columns.len()];
    order.iter().enumerate().for_each(|(place, at)| places[*at] = place);
    batch.project(&places)
}

fn project(rows: &RecordBatch, columns: &[Column]) -> Result<RecordBatch, ArrowError> {
    let arrays = columns.iter().map(|c| rows.column(*c as usize).clone()).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Column::schema(columns), arrays, &options)
}
