//! A part: samples that do not change any more, sealed in a file or taken from somewhere else, and how
//! to read those of them that are wanted.
//!
//! Since a part is sorted by topic and says how many rows each series has, whose a row is follows from
//! where it stands: no column of texts is read.

use std::fs::File;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray as _;
use arrow_array::types::TimestampNanosecondType;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::ArrowError;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, RowGroupMetaData};
use parquet::file::statistics::Statistics;
use skopos_model::{Timestamp, Topic, Unit};

use super::block::{Block, Column, Stretch};
use super::error::{Error, io_at};
use super::seal::SERIES_KEY;
use super::series::{Samples, Series};

/// Rows that are read at once: enough that what is done once a batch costs nothing.
const BATCH_ROWS: usize = 16_384;

/// The columns `node` and `topic` stand before those of [`Column`] in a file.
const TEXT_COLUMNS: usize = 2;

/// Samples that do not change any more.
#[derive(Debug)]
pub struct Part {
    stretches: Vec<Stretch>,
    rows: u64,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Memory(RecordBatch),
    File { path: PathBuf, metadata: ArrowReaderMetadata, groups: Vec<Range<u64>> },
}

/// Which rows of a part are wanted.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Indices of stretches, ascending, and for each the time before which its samples are wanted.
    pub stretches: Vec<(usize, i64)>,
    /// Times that are wanted.
    pub times: RangeInclusive<i64>,
}

/// Rows of one series that follow each other in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The index of its stretch.
    pub stretch: usize,
    /// The first row.
    pub start: usize,
    /// How many.
    pub rows: usize,
}

/// Rows that were read, and whose they are: all that is wanted is in a run, but not every row need be
/// in one.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The columns that were asked for.
    pub batch: RecordBatch,
    /// In the order of the rows.
    pub runs: Vec<Run>,
}

impl Part {
    /// Opens a sealed one.
    ///
    /// # Errors
    /// It cannot be read, or is no part.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(io_at(path, "it cannot be opened"))?;
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let metadata = ArrowReaderMetadata::load(&file, options).map_err(|e| damaged(path, e))?;
        let all = metadata.metadata();
        let lines = all
            .file_metadata()
            .key_value_metadata()
            .and_then(|pairs| pairs.iter().find(|pair| pair.key == SERIES_KEY)?.value.as_deref());
        let lines = lines.ok_or_else(|| wrong(path, "it does not say whose its rows are"))?;
        let stretches = stretches(lines).ok_or_else(|| wrong(path, "its series are damaged"))?;
        let (mut groups, mut rows) = (Vec::new(), 0);
        for group in all.row_groups() {
            let count = u64::try_from(group.num_rows()).unwrap_or(0);
            groups.push(rows..rows + count);
            rows += count;
        }
        let told = stretches.last().map_or(0, |last| last.range().end);
        let columns = all.file_metadata().schema_descr().num_columns();
        if told != rows || columns != TEXT_COLUMNS + Column::ALL.len() {
            return Err(wrong(path, "its rows are not those that it tells"));
        }
        let data = Data::File { path: path.to_path_buf(), metadata, groups };
        Ok(Self { stretches, rows, data })
    }

    /// Of samples that are in memory.
    ///
    /// # Errors
    /// There are more than arrays can have.
    pub fn of_samples(all: Vec<(Series, Samples)>) -> Result<Self, ArrowError> {
        Block::new(all).map(Self::of_block)
    }

    pub(super) fn of_block(block: Block) -> Self {
        let rows = block.rows.num_rows() as u64;
        Self { stretches: block.stretches, rows, data: Data::Memory(block.rows) }
    }

    /// Whose rows it has, in their order.
    pub fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// How many rows it has.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// In how many pieces it can be read side by side.
    pub fn groups(&self) -> usize {
        match &self.data {
            Data::Memory(_) => 1,
            Data::File { groups, .. } => groups.len(),
        }
    }

    /// Whether a piece has anything that is wanted, as far as can be told without reading it.
    pub fn may_have(&self, group: usize, selection: &Selection) -> bool {
        let Data::File { metadata, groups, .. } = &self.data else {
            return !selection.stretches.is_empty();
        };
        let may_be_then =
            times_of(metadata.metadata().row_group(group)).is_none_or(|(from, to)| {
                from <= *selection.times.end() && to >= *selection.times.start()
            });
        may_be_then && !self.wanted(&groups[group], selection).is_empty()
    }

    /// Reads what is wanted of one piece.
    ///
    /// # Errors
    /// The file is gone.
    pub fn read(
        &self,
        group: usize,
        columns: &[Column],
        selection: &Selection,
    ) -> Result<Chunks, Error> {
        // Where only a part of the rows is wanted, their times tell which.
        let mut all: Vec<Column> = columns.to_vec();
        if !columns.contains(&Column::Time) {
            all.push(Column::Time);
        }
        match &self.data {
            Data::Memory(rows) => {
                let wanted = self.wanted(&(0..self.rows), selection);
                let whole = is_whole(&wanted);
                let columns = if whole { columns } else { &all };
                let rows = project(rows, columns)
                    .map_err(|e| Error::Damaged { path: PathBuf::new(), why: e.to_string() })?;
                let source = Rows::Memory(rows);
                let time = (!whole).then(|| place(columns));
                Ok(Chunks { source, wanted: wanted.into(), times: selection.times.clone(), time })
            }
            Data::File { path, metadata, groups } => {
                let group_rows = groups[group].clone();
                let mut wanted = self.wanted(&group_rows, selection);
                narrow_to_pages(&mut wanted, metadata, group, &selection.times);
                let whole = is_whole(&wanted);
                let columns = if whole { columns } else { &all };
                let source = Rows::of_file(path, metadata, group, columns, &wanted, &group_rows)?;
                let time = (!whole).then(|| place(columns));
                Ok(Chunks { source, wanted: wanted.into(), times: selection.times.clone(), time })
            }
        }
    }

    /// The rows of `rows` that are wanted, relative to its first.
    fn wanted(&self, rows: &Range<u64>, selection: &Selection) -> Vec<Wish> {
        let times = &selection.times;
        let first = selection
            .stretches
            .partition_point(|(at, _)| self.stretches[*at].range().end <= rows.start);
        let mut wanted = Vec::new();
        for (at, below) in &selection.stretches[first..] {
            let stretch = &self.stretches[*at];
            if stretch.start >= rows.end {
                break;
            }
            let (from, to) = (stretch.first.as_nanos(), stretch.last.as_nanos());
            if to < *times.start() || from > *times.end() || from >= *below {
                continue;
            }
            let range = stretch.start.max(rows.start)..stretch.range().end.min(rows.end);
            let is_whole = from >= *times.start() && to <= *times.end() && to < *below;
            wanted.push(Wish {
                stretch: *at,
                rows: (range.start - rows.start) as usize..(range.end - rows.start) as usize,
                below: *below,
                is_whole,
            });
        }
        wanted
    }
}

/// Rows of one stretch in a piece.
#[derive(Clone, Debug)]
struct Wish {
    stretch: usize,
    rows: Range<usize>,
    /// Only samples before this time.
    below: i64,
    /// Whether all of the rows are wanted.
    is_whole: bool,
}

fn is_whole(wanted: &[Wish]) -> bool {
    wanted.iter().all(|wish| wish.is_whole)
}

/// Where the times are among some columns.
fn place(columns: &[Column]) -> usize {
    columns.iter().position(|c| *c == Column::Time).unwrap_or_default()
}

fn project(rows: &RecordBatch, columns: &[Column]) -> Result<RecordBatch, ArrowError> {
    let arrays = columns.iter().map(|c| rows.column(*c as usize).clone()).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Column::schema(columns), arrays, &options)
}

/// What is read of one piece.
#[derive(Debug)]
pub struct Chunks {
    source: Rows,
    /// What is still to come, relative to the next row.
    wanted: std::collections::VecDeque<Wish>,
    times: RangeInclusive<i64>,
    /// Where the times are, if they have to be looked at.
    time: Option<usize>,
}

#[derive(Debug)]
enum Rows {
    Nothing,
    Memory(RecordBatch),
    File { path: PathBuf, reader: Box<ParquetRecordBatchReader>, columns: Vec<Column> },
}

impl Rows {
    fn of_file(
        path: &Path,
        metadata: &ArrowReaderMetadata,
        group: usize,
        columns: &[Column],
        wanted: &[Wish],
        rows: &Range<u64>,
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
        let count = (rows.end - rows.start) as usize;
        if wanted.iter().map(|wish| wish.rows.len()).sum::<usize>() < count {
            let ranges = wanted.iter().map(|wish| wish.rows.clone());
            builder =
                builder.with_row_selection(RowSelection::from_consecutive_ranges(ranges, count));
        }
        let reader = builder.build().map_err(|e| damaged(path, e))?;
        let columns = columns.to_vec();
        Ok(Self::File { path: path.to_path_buf(), reader: Box::new(reader), columns })
    }
}

impl Iterator for Chunks {
    type Item = Result<Chunk, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match &mut self.source {
            Rows::Memory(rows) => {
                // From the next row that is wanted on, wishes or not.
                let start = self.wanted.front()?.rows.start;
                let batch = rows.slice(start, BATCH_ROWS.min(rows.num_rows() - start));
                let mut runs = Vec::new();
                while let Some(wish) = self.wanted.front_mut() {
                    let end = wish.rows.end.min(start + batch.num_rows());
                    if wish.rows.start >= end {
                        break;
                    }
                    let rows = wish.rows.start - start..end - start;
                    runs.extend(run(&batch, self.time, &self.times, wish, rows));
                    wish.rows.start = end;
                    if wish.rows.is_empty() {
                        self.wanted.pop_front();
                    }
                }
                return Some(Ok(Chunk { batch, runs }));
            }
            Rows::Nothing => return None,
            Rows::File { path, reader, columns } => match reader.next()? {
                Ok(batch) => ordered(&batch, columns).map_err(|e| damaged(path, e.into())),
                Err(e) => Err(damaged(path, e.into())),
            },
        };
        let batch = match batch {
            Ok(batch) => batch,
            Err(e) => return Some(Err(e)),
        };
        // The reader leaves out what no wish has, so wishes follow each other in what it yields.
        let (mut start, mut runs) = (0, Vec::new());
        while start < batch.num_rows() {
            let Some(wish) = self.wanted.front_mut() else { break };
            let rows = wish.rows.len().min(batch.num_rows() - start);
            runs.extend(run(&batch, self.time, &self.times, wish, start..start + rows));
            start += rows;
            wish.rows.start += rows;
            if wish.rows.is_empty() {
                self.wanted.pop_front();
            }
        }
        Some(Ok(Chunk { batch, runs }))
    }
}

/// The rows of a range that have the times that are wanted: they follow each other, since times do.
fn run(
    batch: &RecordBatch,
    time: Option<usize>,
    times: &RangeInclusive<i64>,
    wish: &Wish,
    rows: Range<usize>,
) -> Option<Run> {
    let mut rows = rows;
    if !wish.is_whole
        && let Some(at) = time
    {
        let all = batch.column(at).as_primitive::<TimestampNanosecondType>().values();
        let slice = &all[rows.clone()];
        let from = slice.partition_point(|t| t < times.start());
        let to = slice.partition_point(|t| t <= times.end() && *t < wish.below);
        rows = rows.start + from..rows.start + to.max(from);
    }
    let run = Run { stretch: wish.stretch, start: rows.start, rows: rows.len() };
    (run.rows > 0).then_some(run)
}

/// The columns in the order in which they were asked for, not that of the file.
fn ordered(batch: &RecordBatch, columns: &[Column]) -> Result<RecordBatch, ArrowError> {
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|at| columns[*at] as usize);
    let mut places = vec![0; columns.len()];
    order.iter().enumerate().for_each(|(place, at)| places[*at] = place);
    batch.project(&places)
}

/// Leaves out pages in which no time is wanted: those of a series are in order.
fn narrow_to_pages(
    wanted: &mut Vec<Wish>,
    metadata: &ArrowReaderMetadata,
    group: usize,
    times: &RangeInclusive<i64>,
) {
    let time = TEXT_COLUMNS + Column::Time as usize;
    let all = metadata.metadata();
    let pages = all.offset_index().and_then(|index| index.get(group)?.get(time));
    let index = all.column_index().and_then(|index| index.get(group)?.get(time));
    let (
        Some(pages),
        Some(parquet::file::page_index::column_index::ColumnIndexMetaData::INT64(index)),
    ) = (pages, index)
    else {
        return;
    };
    let group_rows = usize::try_from(all.row_group(group).num_rows()).unwrap_or(0);
    let starts: Vec<usize> = pages
        .page_locations()
        .iter()
        .map(|page| usize::try_from(page.first_row_index).unwrap_or(0))
        .chain([group_rows])
        .collect();
    let mut kept = Vec::with_capacity(wanted.len());
    for wish in wanted.drain(..) {
        if wish.is_whole {
            kept.push(wish);
            continue;
        }
        for (page, bounds) in starts.windows(2).enumerate() {
            let rows = wish.rows.start.max(bounds[0])..wish.rows.end.min(bounds[1]);
            let is_then = match (index.min_value(page), index.max_value(page)) {
                (Some(from), Some(to)) => from <= times.end() && to >= times.start(),
                _ => true,
            };
            if !rows.is_empty() && is_then {
                kept.push(Wish { rows, ..wish.clone() });
            }
        }
    }
    *wanted = kept;
}

/// The times that a row group has.
fn times_of(group: &RowGroupMetaData) -> Option<(i64, i64)> {
    match group.column(TEXT_COLUMNS + Column::Time as usize).statistics()? {
        Statistics::Int64(times) => Some((*times.min_opt()?, *times.max_opt()?)),
        _ => None,
    }
}

/// Reads the lines of the series.
fn stretches(lines: &str) -> Option<Vec<Stretch>> {
    let mut start = 0;
    let mut stretches = Vec::new();
    for line in lines.lines() {
        let mut words = line.split('\t');
        let mut word = || words.next();
        let series = Series {
            topic: Topic::new(word()?).ok()?,
            unit: Unit::new(word()?).ok()?,
            kind: word()?.parse().ok()?,
            value_type: word()?.parse().ok()?,
            since: Timestamp::from_nanos(word()?.parse().ok()?),
        };
        let rows: u64 = word()?.parse().ok()?;
        let mut time = || Some(Timestamp::from_nanos(word()?.parse().ok()?));
        let (first, last) = (time()?, time()?);
        stretches.push(Stretch { series, start, rows, first, last });
        start = start.checked_add(rows)?;
    }
    Some(stretches)
}

fn damaged(path: &Path, error: ParquetError) -> Error {
    wrong(path, &error.to_string())
}

fn wrong(path: &Path, why: &str) -> Error {
    Error::Damaged { path: path.to_path_buf(), why: why.to_owned() }
}
