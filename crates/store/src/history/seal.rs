//! Writes parts: Parquet files that are whole or not there.
//!
//! # Layout
//! `part-GENERATION-FROM-TO.parquet`, with times in nanoseconds of UNIX time, and inside, for whoever
//! reads Parquet: `node`, `topic`, `time`, `value`, `origin` (0 measured, 1 predicted, 2 unknown),
//! `bound` and `text`, sorted by topic, then time. The key `skopos.series` of the file's metadata has a
//! line for each series in that order: topic, unit, kind, type, when it was registered, rows, time of
//! the first and time of the last, between tabs. So who wants some topics knows their rows without
//! reading a column of texts.

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

/// The key of the series in a part's metadata.
pub(super) const SERIES_KEY: &str = "skopos.series";

/// Rows of a row group: what one thread reads in a millisecond or two, and about two megabytes while
/// it is written.
const GROUP_ROWS: usize = 131_072;

/// Rows of a page: what is read at the least for one topic.
const PAGE_ROWS: usize = 16_384;

/// The name of a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartName {
    /// The log that it is of: two parts of one folder never have the same.
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

/// A part that is being written: series by series, in the order of their topics.
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
    /// The file cannot be made.
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

    /// Appends a series, whose topic is not before that of the one before.
    ///
    /// # Errors
    /// It cannot be written.
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

    /// Makes the part durable, and gives it its name. Returns the file, or `None` if there was nothing.
    ///
    /// # Errors
    /// It cannot be written; there is no part then.
    pub fn finish(mut self) -> Result<Option<PathBuf>, Error> {
        if self.rows == 0 {
            let _ = fs::remove_file(&self.temporary);
            return Ok(None);
        }
        self.write()?;
        let temporary = self.temporary;
        let lines: String = self.stretches.iter().map(line).collect();
        self.writer.append_key_value_metadata(KeyValue::new(SERIES_KEY.to_owned(), lines));
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

/// Makes the names in a folder outlive a loss of power.
pub(super) fn sync_folder(folder: &Path) -> Result<(), Error> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(io_at(folder, "the folder cannot be synced"))
}

fn broken(path: &Path, error: ParquetError) -> Error {
    match error {
        // A full disk, usually.
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(source) => io_at(path, "it cannot be written")(*source),
            Err(cause) => Error::Damaged { path: path.to_path_buf(), why: cause.to_string() },
        },
        other => Error::Damaged { path: path.to_path_buf(), why: other.to_string() },
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
        // Times of one series rise by about the same.
        .set_column_dictionary_enabled(time.clone(), false)
        .set_column_encoding(time, Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(value, false)
        .build())
}

/// A text for each run, as often as it is long.
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

fn line(stretch: &Stretch) -> String {
    let Stretch { series, rows, first, last, .. } = stretch;
    format!(
        "{}\t{}\t{}\t{}\t{}\t{rows}\t{}\t{}\n",
        series.topic,
        series.unit.as_str(),
        series.kind.name(),
        series.value_type.name(),
        series.since.as_nanos(),
        first.as_nanos(),
        last.as_nanos()
    )
}
