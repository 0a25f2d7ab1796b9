//! Writes parts: Parquet files that are complete or absent.
//!
//! # Layout
//! The name is `part-GENERATION-FROM-TO.parquet`, with times in nanoseconds of UNIX time. The columns,
//! which any reader of Parquet can use, are `node`, `topic`, `time`, `value`, `origin` (0 measured, 1
//! predicted, 2 unknown), `bound` and `text`, sorted by topic, then time. The key `skopos.series` of the
//! file's metadata has a line for each series in that order: topic, unit, kind, type, time of
//! registration, number of rows, time of the first and of the last row, separated by tabs. A reader
//! finds the rows of a topic there, without reading a column of texts.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use skopos_model::Timestamp;

use super::block::{Column, Stretch, batch};
use super::error::{Error, io_at};
use super::series::{Samples, Series};
use super::series_list;

/// Number of rows of a row group. Reading a group takes a millisecond or two; writing it takes about two
/// megabytes of memory.
const GROUP_ROWS: usize = 131_072;

/// Rows of a page: the least that is read for one topic.
const PAGE_ROWS: usize = 16_384;

/// The name of a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartName {
    /// Generation of its log. Two parts of one folder never have the same.
    pub(super) generation: u64,
    pub(super) from: i64,
    pub(super) to: i64,
}

impl PartName {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut words = name.strip_prefix("part-")?.strip_suffix(".parquet")?.split('-');
        let mut number = || words.next()?.parse::<i64>().ok();
        let (generation, from, to) = (number()?, number()?, number()?);
        let generation = u64::try_from(generation).ok()?;
        let name = Self { generation, from, to };
        words.next().is_none().then_some(name)
    }

    pub(super) fn file_name(&self) -> String {
        format!("part-{:08}-{}-{}.parquet", self.generation, self.from.max(0), self.to.max(0))
    }
}

/// Writes a part, series by series, in the order of their topics.
pub struct Sealer {
    folder: PathBuf,
    temporary: PathBuf,
    generation: u64,
    writer: ArrowWriter<BufWriter<File>>,
    schema: Arc<Schema>,
    stretches: Vec<Stretch>,
    rows: u64,
    waiting: Vec<(Series, Samples)>,
    waiting_rows: usize,
}

impl Sealer {
    /// Begins a part of a generation in a folder.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn new(folder: &Path, generation: u64) -> Result<Self, Error> {
        let temporary = folder.join(format!("part-{generation:08}.tmp"));
        let file = File::create(&temporary).map_err(io_at(&temporary, "it cannot be made"))?;
        let dictionary =
            || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let texts = ["node", "topic"].map(|name| Field::new(name, dictionary(), false));
        let columns = Column::ALL.map(Column::field);
        let fields: Vec<Field> = texts.into_iter().chain(columns).collect();
        let schema = Arc::new(Schema::new(fields));
        let writer =
            ArrowWriter::try_new(BufWriter::new(file), schema.clone(), Some(properties()?));
        Ok(Self {
            writer: writer.map_err(|e| broken(&temporary, e))?,
            folder: folder.to_path_buf(),
            temporary,
            generation,
            schema,
            stretches: Vec::new(),
            rows: 0,
            waiting: Vec::new(),
            waiting_rows: 0,
        })
    }

    /// Appends a series. Its topic must not sort before that of the previous series.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, series: Series, samples: Samples) -> Result<(), Error> {
        let (Some(first), Some(last)) = (samples.times.first(), samples.times.last()) else {
            return Ok(());
        };
        let (start, rows) = (self.rows, samples.len() as u64);
        let (first, last) = (Timestamp::from_nanos(*first), Timestamp::from_nanos(*last));
        self.stretches.push(Stretch { series: series.clone(), start, rows, first, last });
        self.rows += rows;
        self.waiting_rows += samples.len();
        self.waiting.push((series, samples));
        if self.waiting_rows >= GROUP_ROWS {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), Error> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_rows = 0;
        let samples: Vec<&Samples> = waiting.iter().map(|(_, samples)| samples).collect();
        let columns = batch(&samples).map_err(|e| broken(&self.temporary, e.into()))?;
        let runs = || waiting.iter().map(|(series, samples)| (series, samples.len()));
        let node = repeated(runs().map(|(series, rows)| (series.topic.node(), rows)));
        let topic = repeated(runs().map(|(series, rows)| (series.topic.as_str(), rows)));
        let all = [node, topic].into_iter().chain(columns.columns().iter().cloned()).collect();
        let rows = RecordBatch::try_new(self.schema.clone(), all);
        let rows = rows.map_err(|e| broken(&self.temporary, e.into()))?;
        self.writer.write(&rows).map_err(|e| broken(&self.temporary, e))
    }

    /// Makes the part durable, and gives it its name. Returns the file; `None` if no samples were pushed.
    ///
    /// # Errors
    /// The file cannot be written; then there is no part.
    pub fn finish(mut self) -> Result<Option<PathBuf>, Error> {
        if self.rows == 0 {
            let _ = fs::remove_file(&self.temporary);
            return Ok(None);
        }
        self.write()?;
        let temporary = self.temporary;
        let list = series_list::write(&self.stretches);
        self.writer.append_key_value_metadata(KeyValue::new(series_list::KEY.to_owned(), list));
        let file = self.writer.into_inner().map_err(|e| broken(&temporary, e))?;
        let file = file.into_inner().map_err(|e| e.into_error());
        file.and_then(|file| file.sync_all()).map_err(io_at(&temporary, "it cannot be written"))?;
        let from = self.stretches.iter().map(|s| s.first.as_nanos()).min().unwrap_or_default();
        let to = self.stretches.iter().map(|s| s.last.as_nanos()).max().unwrap_or_default();
        let name = PartName { generation: self.generation, from, to };
        let path = self.folder.join(name.file_name());
        fs::rename(&temporary, &path).map_err(io_at(&path, "it cannot get its name"))?;
        sync_folder(&self.folder)?;
        Ok(Some(path))
    }
}

/// Syncs the names in a folder to disk, so that they survive a loss of power.
pub(super) fn sync_folder(folder: &Path) -> Result<(), Error> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(io_at(folder, "the folder cannot be synced"))
}

fn broken(path: &Path, error: ParquetError) -> Error {
    match error {
        // Usually a full disk.
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(source) => io_at(path, "it cannot be written")(*source),
            Err(cause) => Error::damaged(path, &cause),
        },
        other => Error::damaged(path, &other),
    }
}

fn properties() -> Result<WriterProperties, Error> {
    let path = |name: &str| ColumnPath::from(name);
    let level = ZstdLevel::try_new(1).unwrap_or_default();
    let (time, value) = (path(Column::Time.name()), path(Column::Value.name()));
    Ok(WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        // Times of one series rise by about equal steps.
        .set_column_dictionary_enabled(time.clone(), false)
        .set_column_encoding(time, Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(value, false)
        .build())
}

/// Makes a column with the text of each run, repeated by the run's length.
fn repeated<'t>(runs: impl Iterator<Item = (&'t str, usize)>) -> ArrayRef {
    let (mut keys, mut texts): (Vec<i32>, Vec<&str>) = (Vec::new(), Vec::new());
    for (text, rows) in runs {
        if texts.last() != Some(&text) {
            texts.push(text);
        }
        keys.extend(std::iter::repeat_n(texts.len() as i32 - 1, rows));
    }
    let (keys, texts) = (Int32Array::from(keys), Arc::new(StringArray::from(texts)));
    Arc::new(DictionaryArray::<Int32Type>::new(keys, texts))
}
