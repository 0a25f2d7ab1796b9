//! Writes parts: Parquet files that are complete or absent.
//!
//! # Layout
//! The name is `part-GENERATIONS-FROM-TO-TAIL-SUM.parquet`: a generation, or `FIRST..LAST` of a part that was merged from
//! those of several generations, times in nanoseconds of UNIX time, then the length of
//! the tail and its checksum (see `sealed`) in hexadecimal. The columns, which any reader of Parquet can use, are
//! `node`, `topic`, `time`, `value`, `integer` (where `value` is not exact), `origin` (0 measured, 1 predicted, 2
//! unknown), `bound` and `text`, sorted by topic, then time. The key `skopos.series` of the
//! file's metadata has a line for each series in that order: topic, unit, kind, type, time of
//! registration, number of rows, time of the first and of the last row, separated by tabs. A reader
//! finds the rows of a topic there, without reading a column of texts.

use std::io;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::ColumnPath;
use skopos_model::Timestamp;

use super::block::Stretch;
use super::column::{Column, schema};
use super::series::{Samples, Series, within};
use super::series_list;
use crate::log::{Disk, Error, OsDisk, io_at};
use crate::sealed::{self, SummedWriter, unwritten};

/// Number of rows of a row group. Reading a group takes a millisecond or two; writing it takes about two
/// megabytes of memory.
const GROUP_ROWS: usize = 131_072;

/// Bytes of texts after which a row group ends before it has all of its rows. Texts of as many rows could have half a
/// gigabyte, and a writer has a group in memory.
const GROUP_TEXT_BYTES: usize = 4 << 20;

/// Rows of a page: the least that is read for one topic.
const PAGE_ROWS: usize = 16_384;

/// The name of a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartName {
    /// Generation of the first log that it has.
    pub(super) first: u64,
    /// Generation of the last one: a later one if the part was merged.
    pub(super) last: u64,
    pub(super) from: i64,
    pub(super) to: i64,
    /// Length of its tail in bytes.
    pub(super) tail: u64,
    /// Checksum of its tail, and of the rest of the name.
    pub(super) sum: u32,
}

impl PartName {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut words = name.strip_prefix("part-")?.strip_suffix(".parquet")?.split('-');
        let generations = words.next()?;
        let (first, last) = match generations.split_once("..") {
            Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
            None => (generations.parse().ok()?, generations.parse().ok()?),
        };
        let (from, to) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let tail = u64::from_str_radix(words.next()?, 16).ok()?;
        let sum = u32::from_str_radix(words.next()?, 16).ok()?;
        let part = Self { first, last, from, to, tail, sum };
        // A file with a number in another form is not found by its parsed name.
        (first <= last && part.file_name() == name).then_some(part)
    }

    pub(super) fn file_name(&self) -> String {
        let Self { from, to, tail, sum, .. } = self;
        let generations = written(&self.generations());
        format!("part-{generations}-{from}-{to}-{tail:x}-{sum:08x}.parquet")
    }

    /// Returns the generations of the logs that it has.
    pub(super) fn generations(&self) -> RangeInclusive<u64> {
        self.first..=self.last
    }

    /// Returns the number of these generations.
    pub(super) fn count(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    /// Returns true if it has every generation of `other`.
    pub(super) fn contains(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Returns the bytes of the name that its checksum covers.
    pub(super) fn covered(&self) -> Vec<u8> {
        let mut bytes = self.first.to_le_bytes().to_vec();
        if self.last > self.first {
            bytes.extend(self.last.to_le_bytes());
        }
        for field in [self.from.to_le_bytes(), self.to.to_le_bytes(), self.tail.to_le_bytes()] {
            bytes.extend(field);
        }
        bytes
    }
}

/// Returns generations as the name of a part has them.
fn written(generations: &RangeInclusive<u64>) -> String {
    let (first, last) = (generations.start(), generations.end());
    match first == last {
        true => format!("{first:08}"),
        false => format!("{first:08}..{last:08}"),
    }
}

/// Writes a part, series by series, in the order of their topics.
pub struct Sealer {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    temporary: PathBuf,
    generations: RangeInclusive<u64>,
    writer: SerializedFileWriter<SummedWriter>,
    stretches: Vec<Stretch>,
    rows: u64,
    /// Rows that are not in a group yet: the last ones.
    waiting: Samples,
    /// Bytes of their texts.
    text_bytes: usize,
}

impl Sealer {
    /// Begins a part of a generation in a folder.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn new(folder: &Path, generation: u64) -> Result<Self, Error> {
        Self::on(Arc::new(OsDisk), folder, generation..=generation)
    }

    pub(super) fn on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        generations: RangeInclusive<u64>,
    ) -> Result<Self, Error> {
        let temporary = folder.join(format!("part-{}.tmp", written(&generations)));
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
            generations,
            stretches: Vec::new(),
            rows: 0,
            waiting: Samples::default(),
            text_bytes: 0,
        })
    }

    /// Returns the path of the file before it has its name.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Returns the number of rows that were appended.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Appends a series. Its topic must not sort before that of the previous series.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, series: Series, samples: Samples) -> Result<(), Error> {
        self.append(&series, &samples, 0..samples.len())
    }

    /// Appends rows of a series, to the stretch before them if that is of the same series and earlier.
    pub(super) fn append(
        &mut self,
        series: &Series,
        samples: &Samples,
        rows: Range<usize>,
    ) -> Result<(), Error> {
        let times = &samples.times[rows.clone()];
        let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(()) };
        let (first, last) = (Timestamp::from_nanos(*first), Timestamp::from_nanos(*last));
        let count = rows.len() as u64;
        match self.stretches.last_mut() {
            Some(before) if before.last < first && before.series == *series => {
                before.rows += count;
                before.last = last;
            }
            _ => {
                let (series, start) = (series.clone(), self.rows);
                self.stretches.push(Stretch { series, start, rows: count, first, last });
            }
        }
        self.rows += count;
        self.text_bytes += text_bytes(samples, &rows);
        self.waiting.append_rows(samples, rows, self.waiting.len(), &Column::ALL);
        while self.waiting.len() >= GROUP_ROWS || self.text_bytes >= GROUP_TEXT_BYTES {
            let waiting = std::mem::take(&mut self.waiting);
            let count = waiting.len().min(GROUP_ROWS);
            self.write(&waiting, 0..count)?;
            self.waiting.append_rows(&waiting, count..waiting.len(), 0, &Column::ALL);
            self.text_bytes = text_bytes(&self.waiting, &(0..self.waiting.len()));
        }
        Ok(())
    }

    /// Writes some of the last rows as a group. `waiting` has all rows that are not in a group yet.
    fn write(&mut self, waiting: &Samples, rows: Range<usize>) -> Result<(), Error> {
        let first = self.rows - waiting.len() as u64;
        let group = first + rows.start as u64..first + rows.end as u64;
        let written = self.writer.next_row_group().and_then(|mut writer| {
            write_topics(&mut writer, &self.stretches, &group, |series| series.topic.node())?;
            write_topics(&mut writer, &self.stretches, &group, |series| series.topic.as_str())?;
            write_samples(&mut writer, waiting, &rows)?;
            writer.close()
        });
        written.map_err(|e| unwritten(&self.temporary, e))?;
        Ok(())
    }

    /// Makes the part durable, and gives it its name. Returns the file. A part without samples shows that its
    /// generation is not lost.
    ///
    /// # Errors
    /// The file cannot be written; then there is no part.
    pub fn finish(self) -> Result<PathBuf, Error> {
        let folder = self.folder.clone();
        let (name, _) = self.finish_part()?;
        Ok(folder.join(name.file_name()))
    }

    /// The same as [`finish`](Self::finish), for the name of the part and its length in bytes.
    pub(super) fn finish_part(mut self) -> Result<(PartName, u64), Error> {
        let waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() {
            self.write(&waiting, 0..waiting.len())?;
        }
        let Self { disk, folder, temporary, generations, mut writer, stretches, .. } = self;
        writer.flush().map_err(io_at(&temporary, "it cannot be written"))?;
        let sums = writer.inner_mut().begin_tail();
        let list = series_list::write(&stretches);
        for (key, value) in [(series_list::KEY, list), (sealed::KEY, sums)] {
            writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        let file = writer.into_inner().map_err(|e| unwritten(&temporary, e))?;
        let bytes = file.length();
        // Names have no signs. Without samples the range is empty.
        let from = stretches.iter().map(|s| s.first.as_nanos().max(0)).min().unwrap_or(i64::MAX);
        let to = stretches.iter().map(|s| s.last.as_nanos()).max().unwrap_or(0).max(0);
        let (first, last) = generations.into_inner();
        let mut name = PartName { first, last, from, to, tail: 0, sum: 0 };
        let summed = file.finish(|tail| PartName { tail, ..name.clone() }.covered());
        (name.tail, name.sum) = summed.map_err(io_at(&temporary, "it cannot be written"))?;
        let path = folder.join(name.file_name());
        disk.rename(&temporary, &path).map_err(io_at(&path, "it cannot get its name"))?;
        disk.sync_folder(&folder).map_err(io_at(&folder, "the folder cannot be synced"))?;
        Ok((name, bytes))
    }
}

/// Returns the bytes of the texts of some rows.
fn text_bytes(samples: &Samples, rows: &Range<usize>) -> usize {
    within(&samples.texts, rows).iter().map(|(_, text)| text.len()).sum()
}

fn properties() -> WriterProperties {
    let path = |name: &str| ColumnPath::from(name);
    let level = ZstdLevel::try_new(1).unwrap_or_default();
    let (time, value) = (path(Column::Time.name()), path(Column::Value.name()));
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        // Times of one series rise by about equal steps.
        .set_column_dictionary_enabled(time.clone(), false)
        .set_column_encoding(time, Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(value, false)
        .build()
}

type GroupWriter<'w> = SerializedRowGroupWriter<'w, SummedWriter>;

/// Writes the next column: for each row of the group, a text of its series.
fn write_topics(
    group: &mut GroupWriter<'_>,
    stretches: &[Stretch],
    rows: &Range<u64>,
    text: impl Fn(&Series) -> &str,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.ok_or_else(no_column)?;
    let first = stretches.partition_point(|stretch| stretch.range().end <= rows.start);
    for stretch in stretches[first..].iter().take_while(|stretch| stretch.start < rows.end) {
        let range = stretch.range();
        let mut left = (range.end.min(rows.end) - range.start.max(rows.start)) as usize;
        let texts = vec![ByteArray::from(text(&stretch.series)); left.min(PAGE_ROWS)];
        while left > 0 {
            let batch = &texts[..left.min(PAGE_ROWS)];
            column.typed::<ByteArrayType>().write_batch(batch, None, None)?;
            left -= batch.len();
        }
    }
    column.close()
}

/// Writes the columns of samples.
fn write_samples(
    group: &mut GroupWriter<'_>,
    samples: &Samples,
    rows: &Range<usize>,
) -> Result<(), ParquetError> {
    write::<Int64Type>(group, &samples.times[rows.clone()], None)?;
    let values = &samples.values[rows.clone()];
    let levels: Vec<i16> = values.iter().map(|value| i16::from(!value.is_nan())).collect();
    let values: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    write::<DoubleType>(group, &values, Some(&levels))?;
    let (levels, integers) = levels_of(&samples.integers, rows, |integer| *integer);
    write::<Int64Type>(group, &integers, Some(&levels))?;
    let origins: Vec<i32> =
        samples.origins[rows.clone()].iter().map(|code| (*code).into()).collect();
    write::<Int32Type>(group, &origins, None)?;
    let (levels, bounds) = levels_of(&samples.bounds, rows, |bound| *bound);
    write::<DoubleType>(group, &bounds, Some(&levels))?;
    let (levels, texts) = levels_of(&samples.texts, rows, |text| ByteArray::from(text.as_str()));
    write::<ByteArrayType>(group, &texts, Some(&levels))
}

/// Returns the definition levels of a column with values in few rows, and these values.
fn levels_of<V, T>(
    all: &[(usize, V)],
    rows: &Range<usize>,
    value: impl Fn(&V) -> T,
) -> (Vec<i16>, Vec<T>) {
    let (mut levels, mut values) = (vec![0; rows.len()], Vec::new());
    for (row, known) in within(all, rows) {
        levels[row - rows.start] = 1;
        values.push(value(known));
    }
    (levels, values)
}

/// Writes the next column.
fn write<T: DataType>(
    group: &mut GroupWriter<'_>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.ok_or_else(no_column)?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

fn no_column() -> ParquetError {
    ParquetError::General("the schema has too few columns".to_owned())
}
