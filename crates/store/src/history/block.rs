//! Samples of many series as one batch of columns, sorted by topic, then time: the content of a part on
//! disk, and of a log in memory.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, StringBuilder};
use arrow_array::{ArrayRef, Float64Array, RecordBatch, TimestampNanosecondArray, UInt8Array};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use skopos_model::Timestamp;

use super::error::Error;
use super::log::{self, Entry};
use super::series::{Samples, Series};

/// Number of the columns before those of [`Column`] in a part's file: `node` and `topic`.
pub(super) const TEXT_COLUMNS: usize = 2;

/// The time zone of columns of times.
pub const UTC: &str = "UTC";

/// A column of samples, beside the columns that follow from their series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Time at which the value held, in nanoseconds of UNIX time.
    Time,
    /// The number; null if the value is not a known number.
    Value,
    /// `0` measured, `1` predicted, `2` unknown.
    Origin,
    /// The bound of a predicted value.
    Bound,
    /// JSON of a structured value.
    Text,
}

impl Column {
    /// All columns, in the order of a part.
    pub const ALL: [Self; 5] = [Self::Time, Self::Value, Self::Origin, Self::Bound, Self::Text];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Value => "value",
            Self::Origin => "origin",
            Self::Bound => "bound",
            Self::Text => "text",
        }
    }

    pub(super) fn field(self) -> Field {
        let (data_type, nullable) = match self {
            Self::Time => (DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into())), false),
            Self::Value | Self::Bound => (DataType::Float64, true),
            Self::Origin => (DataType::UInt8, false),
            Self::Text => (DataType::Utf8, true),
        };
        Field::new(self.name(), data_type, nullable)
    }

    pub(super) fn schema(columns: &[Self]) -> SchemaRef {
        Arc::new(Schema::new(columns.iter().map(|c| c.field()).collect::<Vec<_>>()))
    }
}

/// The consecutive rows of one series in a part or a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Their series.
    pub series: Series,
    /// The first row.
    pub start: u64,
    /// Number of rows.
    pub rows: u64,
    /// Time of the first row.
    pub first: Timestamp,
    /// Time of the last row.
    pub last: Timestamp,
}

impl Stretch {
    /// Returns the range of its rows.
    #[inline]
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.rows
    }
}

/// Samples of many series.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) stretches: Vec<Stretch>,
    /// All columns.
    pub(super) rows: RecordBatch,
}

impl Block {
    /// Makes a block of series in any order.
    pub(super) fn new(all: Vec<(Series, Samples)>) -> Result<Self, ArrowError> {
        let all = sorted(all);
        let mut stretches = Vec::with_capacity(all.len());
        let mut start = 0;
        for (series, samples) in &all {
            let rows = samples.len() as u64;
            let at = |at: Option<&i64>| Timestamp::from_nanos(at.copied().unwrap_or_default());
            let (first, last) = (at(samples.times.first()), at(samples.times.last()));
            stretches.push(Stretch { series: series.clone(), start, rows, first, last });
            start += rows;
        }
        let parts: Vec<&Samples> = all.iter().map(|(_, samples)| samples).collect();
        Ok(Self { stretches, rows: batch(&parts)? })
    }

    /// Makes a block of a log's complete frames.
    pub(super) fn of_log(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let mut content = LogContent::default();
        log::read(path, bytes, &mut |entry| content.take(entry))?;
        content.block(path)
    }
}

/// Returns the series in the order of a part: by topic, then time. Leaves out series without samples.
fn sorted(mut all: Vec<(Series, Samples)>) -> Vec<(Series, Samples)> {
    all.retain(|(_, samples)| !samples.is_empty());
    all.sort_by(|(a, x), (b, y)| {
        a.topic.cmp(&b.topic).then_with(|| x.times.first().cmp(&y.times.first()))
    });
    all
}

/// The content of a log.
#[derive(Debug, Default)]
pub(super) struct LogContent {
    by_index: HashMap<u32, (Series, Samples)>,
}

impl LogContent {
    pub(super) fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Series(index, series) => {
                self.by_index.insert(index, (series, Samples::default()));
            }
            Entry::Sample(index, sample) => {
                if let Some((_, samples)) = self.by_index.get_mut(&index) {
                    samples.push(&sample);
                }
            }
        }
    }

    /// Returns the series in the order of a part.
    pub(super) fn sorted(self) -> Vec<(Series, Samples)> {
        sorted(self.by_index.into_values().collect())
    }

    fn block(self, path: &Path) -> Result<Block, Error> {
        Block::new(self.by_index.into_values().collect()).map_err(|e| Error::damaged(path, &e))
    }
}

/// Makes all columns of the samples, one series after the other.
pub(super) fn batch(parts: &[&Samples]) -> Result<RecordBatch, ArrowError> {
    let times: Vec<i64> = parts.iter().flat_map(|s| s.times.iter().copied()).collect();
    let number = |v: &f64| (!v.is_nan()).then_some(*v);
    let values: Float64Array = parts.iter().flat_map(|s| s.values.iter().map(number)).collect();
    let origins: Vec<u8> = parts.iter().flat_map(|s| s.origins.iter().copied()).collect();
    let (mut bounds, mut texts) = (Float64Builder::new(), StringBuilder::new());
    for samples in parts {
        let (mut at_bound, mut at_text) = (0, 0);
        for (bound_at, bound) in &samples.bounds {
            bounds.append_nulls(bound_at - at_bound);
            bounds.append_value(*bound);
            at_bound = bound_at + 1;
        }
        bounds.append_nulls(samples.len() - at_bound);
        for (text_at, text) in &samples.texts {
            (at_text..*text_at).for_each(|_| texts.append_null());
            texts.append_value(text);
            at_text = text_at + 1;
        }
        (at_text..samples.len()).for_each(|_| texts.append_null());
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampNanosecondArray::from(times).with_timezone(UTC)),
        Arc::new(values),
        Arc::new(UInt8Array::from(origins)),
        Arc::new(bounds.finish()),
        Arc::new(texts.finish()),
    ];
    RecordBatch::try_new(Column::schema(&Column::ALL), columns)
}
