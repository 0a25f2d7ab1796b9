//! Columns that are made of samples: each knows its name, type and how a row fills it, and only those
//! that are asked for are made.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray as _, BooleanArray, BooleanBufferBuilder, Float64Builder, RecordBatch,
    RecordBatchOptions, StringArray, StringBuilder, TimestampNanosecondBuilder,
};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, UInt8Type};
use datafusion::error::Result;
use skopos_model::{Origin, Timestamp, Value, schema};
use skopos_store::history::{self, Run, Series, Stretch};

use crate::source::Row;

/// One column of a table of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Topic,
    Node,
    Family,
    Instance,
    Metric,
    Value,
    Text,
    Unit,
    Kind,
    Origin,
    Bound,
    Time,
    CheckedAt,
    Age,
    Publisher,
    /// As `Time`, by the name that the paper has.
    PaperTimestamp,
    /// As `Value`, by the name that the paper has.
    PaperMetric,
}

/// Times are in UTC.
pub(crate) const UTC: &str = "UTC";

impl Column {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Node => "node",
            Self::Family => "family",
            Self::Instance => "instance",
            Self::Metric | Self::PaperMetric => "metric",
            Self::Value => "value",
            Self::Text => "text",
            Self::Unit => "unit",
            Self::Kind => "kind",
            Self::Origin => "origin",
            Self::Bound => "bound",
            Self::Time => "time",
            Self::CheckedAt => "checked_at",
            Self::Age => "age",
            Self::Publisher => "publisher",
            Self::PaperTimestamp => "timestamp",
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Value | Self::PaperMetric | Self::Bound | Self::Age => DataType::Float64,
            Self::Time | Self::CheckedAt | Self::PaperTimestamp => {
                DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into()))
            }
            _ => DataType::Utf8,
        }
    }

    pub(crate) fn field(self) -> Field {
        Field::new(self.name(), self.data_type(), true)
    }
}

impl Column {
    /// Those that follow from the series of a sample.
    pub(crate) const OF_SERIES: [Self; 7] = [
        Self::Topic,
        Self::Node,
        Self::Family,
        Self::Instance,
        Self::Metric,
        Self::Unit,
        Self::Kind,
    ];

    /// Whether rows that follow each other have the same in a column of this name, or nearly so if it is
    /// a time: where samples are read, those of a series come together.
    pub(crate) fn comes_in_runs(name: &str) -> bool {
        let times = [Self::Time, Self::PaperTimestamp];
        Self::OF_SERIES.iter().chain(&times).any(|column| column.name() == name)
    }

    /// What of a part makes this column, if it is not made of its series.
    fn of_part(self) -> Option<history::Column> {
        Some(match self {
            Self::Time | Self::PaperTimestamp => history::Column::Time,
            Self::Value | Self::PaperMetric => history::Column::Value,
            Self::Text => history::Column::Text,
            Self::Origin => history::Column::Origin,
            Self::Bound => history::Column::Bound,
            _ => return None,
        })
    }

    /// What of a part makes these columns.
    pub(crate) fn stored(columns: &[Self]) -> Vec<history::Column> {
        let mut stored: Vec<_> = columns.iter().filter_map(|column| column.of_part()).collect();
        stored.sort_by_key(|column| *column as usize);
        stored.dedup();
        stored
    }
}

/// The rows of a chunk that are wanted. `stored` says what the columns of `batch` are; `of` whose its
/// rows are.
pub(crate) fn of_chunk(
    columns: &[Column],
    schema: SchemaRef,
    stored: &[history::Column],
    batch: &RecordBatch,
    of: (&[Stretch], &[Run]),
) -> Result<RecordBatch> {
    let (stretches, runs) = of;
    let rows: usize = runs.iter().map(|run| run.rows).sum();
    let batch = match runs {
        _ if rows == batch.num_rows() => batch.clone(),
        [run] => batch.slice(run.start, run.rows),
        _ => filter_record_batch(batch, &is_in(runs, batch.num_rows()))?,
    };
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for column in columns {
        let place = column.of_part().and_then(|c| stored.iter().position(|s| *s == c));
        arrays.push(match place {
            Some(at) if *column == Column::Origin => origins(batch.column(at)),
            Some(at) => batch.column(at).clone(),
            None => of_series(*column, runs.iter().map(|r| (&stretches[r.stretch].series, r.rows))),
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
}

/// Subset of `rows` rows are in a run.
fn is_in(runs: &[Run], rows: usize) -> BooleanArray {
    let mut is_in = BooleanBufferBuilder::new(rows);
    for run in runs {
        is_in.append_n(run.start - is_in.len(), false);
        is_in.append_n(run.rows, true);
    }
    is_in.append_n(rows - is_in.len(), false);
    BooleanArray::new(is_in.finish(), None)
}

fn origins(codes: &ArrayRef) -> ArrayRef {
    let codes = codes.as_primitive::<UInt8Type>().values().iter();
    let names = codes.map(|code| history::ORIGINS.get(usize::from(*code)).copied());
    Arc::new(names.collect::<StringArray>())
}

/// A column that follows from the series, for as many rows of each as are said.
pub(crate) fn of_series<'s>(
    column: Column,
    runs: impl Iterator<Item = (&'s Series, usize)>,
) -> ArrayRef {
    let mut texts = StringBuilder::new();
    for (series, rows) in runs {
        let topic = &series.topic;
        let text = match column {
            Column::Topic => Some(topic.as_str()),
            Column::Node => Some(topic.node()),
            Column::Metric => Some(topic.metric()),
            Column::Unit => Some(series.unit.as_str()),
            Column::Kind => Some(series.kind.name()),
            Column::Family => schema::lookup_in_family(topic).map(|(family, _)| family.name),
            Column::Instance => instance(topic.as_str(), topic),
            _ => None,
        };
        (0..rows).for_each(|_| texts.append_option(text));
    }
    Arc::new(texts.finish())
}

pub(crate) fn schema_of(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|c| c.field()).collect::<Vec<_>>()))
}

/// Makes batches of rows.
pub(crate) struct Batch {
    columns: Vec<(Column, Builder)>,
    schema: SchemaRef,
    now: Timestamp,
    rows: usize,
}

enum Builder {
    Text(StringBuilder),
    Number(Float64Builder),
    Time(TimestampNanosecondBuilder),
}

impl Batch {
    pub(crate) fn new(columns: &[Column], now: Timestamp) -> Self {
        Self::with(columns, schema_of(columns), now)
    }

    /// With other names than the columns' own.
    pub(crate) fn named(columns: &[Column], names: &[String], now: Timestamp) -> Self {
        let fields = columns.iter().zip(names).map(|(c, name)| c.field().with_name(name));
        Self::with(columns, Arc::new(Schema::new(fields.collect::<Vec<_>>())), now)
    }

    fn with(columns: &[Column], schema: SchemaRef, now: Timestamp) -> Self {
        let builder = |column: Column| match column.data_type() {
            DataType::Float64 => Builder::Number(Float64Builder::new()),
            DataType::Utf8 => Builder::Text(StringBuilder::new()),
            _ => Builder::Time(TimestampNanosecondBuilder::new().with_timezone(UTC)),
        };
        Self { columns: columns.iter().map(|c| (*c, builder(*c))).collect(), schema, now, rows: 0 }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn push(&mut self, row: &Row<'_>) {
        self.rows += 1;
        for (column, builder) in &mut self.columns {
            match builder {
                Builder::Text(texts) => push_text(*column, row, texts),
                Builder::Number(numbers) => numbers.append_option(number(*column, row, self.now)),
                Builder::Time(times) => times.append_value(match column {
                    Column::CheckedAt => row.checked_at.as_nanos(),
                    _ => row.sample.time.as_nanos(),
                }),
            }
        }
    }

    /// One row without anything.
    pub(crate) fn push_nothing(&mut self) {
        self.rows += 1;
        for (_, builder) in &mut self.columns {
            match builder {
                Builder::Text(texts) => texts.append_null(),
                Builder::Number(numbers) => numbers.append_null(),
                Builder::Time(times) => times.append_null(),
            }
        }
    }

    /// What was pushed, and begins anew.
    pub(crate) fn take(&mut self) -> Result<RecordBatch> {
        let arrays = self.columns.iter_mut().map(|(_, builder)| -> ArrayRef {
            match builder {
                Builder::Text(texts) => Arc::new(texts.finish()),
                Builder::Number(numbers) => Arc::new(numbers.finish()),
                Builder::Time(times) => Arc::new(times.finish()),
            }
        });
        let options =
            RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays.collect(), &options)?)
    }
}

fn number(column: Column, row: &Row<'_>, now: Timestamp) -> Option<f64> {
    match column {
        Column::Age => Some(row.age(now).as_secs_f64()),
        Column::Bound => match row.sample.origin {
            Origin::Predicted { bound } => Some(bound),
            _ => None,
        },
        _ => value(row),
    }
}

/// The value as a number: none if it is unknown, no number, or not finite.
pub(crate) fn value(row: &Row<'_>) -> Option<f64> {
    let is_known = row.sample.origin != Origin::Unknown;
    row.sample.value.as_f64().filter(|v| is_known && v.is_finite())
}

fn push_text(column: Column, row: &Row<'_>, texts: &mut StringBuilder) {
    let topic = row.of.topic;
    match column {
        Column::Topic => texts.append_value(topic.as_str()),
        Column::Node => texts.append_value(topic.node()),
        Column::Metric => texts.append_value(topic.metric()),
        Column::Unit => texts.append_value(row.of.unit.as_str()),
        Column::Kind => texts.append_value(row.of.kind.name()),
        Column::Origin => texts.append_value(match row.sample.origin {
            Origin::Measured => "measured",
            Origin::Predicted { .. } => "predicted",
            Origin::Unknown => "unknown",
        }),
        Column::Publisher => texts.append_value(row.of.publisher),
        Column::Text => match &row.sample.value {
            Value::Structured(structured) => texts.append_value(structured.to_string()),
            _ => texts.append_null(),
        },
        Column::Family => {
            texts.append_option(schema::lookup_in_family(topic).map(|(family, _)| family.name));
        }
        Column::Instance => texts.append_option(instance(topic.as_str(), topic)),
        _ => texts.append_null(),
    }
}

/// What stands between the family's path and the metric.
pub(crate) fn instance<'t>(text: &'t str, topic: &skopos_model::Topic) -> Option<&'t str> {
    let (family, metric) = schema::lookup_in_family(topic)?;
    let below_node = text.split_once('/')?.1;
    let below_path = below_node.strip_prefix(family.path)?.strip_prefix('/')?;
    below_path.strip_suffix(metric.name)?.strip_suffix('/')
}
