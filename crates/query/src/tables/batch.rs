//! Batches of samples that are in memory, made row by row.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Float64Builder, RecordBatch, RecordBatchOptions, StringBuilder,
    TimestampNanosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use skopos_model::{Origin, Timestamp, Value, schema};

use crate::column::UTC;
use crate::source::Row;
use crate::tables::sample_column::{SampleColumn, instance, sample_schema, value};

/// Builds batches with some columns of samples.
pub(crate) struct SampleBatch {
    columns: Vec<(SampleColumn, Builder)>,
    schema: SchemaRef,
    now: Timestamp,
    rows: usize,
}

enum Builder {
    Text(StringBuilder),
    Number(Float64Builder),
    Time(TimestampNanosecondBuilder),
}

impl SampleBatch {
    pub(crate) fn new(columns: &[SampleColumn], now: Timestamp) -> Self {
        Self::with(columns, sample_schema(columns), now)
    }

    /// Returns a builder whose columns have other names than their own.
    pub(crate) fn named(columns: &[SampleColumn], names: &[String], now: Timestamp) -> Self {
        let field = |column: &SampleColumn, name| Field::new(name, column.data_type(), true);
        let fields: Vec<Field> = columns.iter().zip(names).map(|(c, n)| field(c, n)).collect();
        Self::with(columns, Arc::new(Schema::new(fields)), now)
    }

    fn with(columns: &[SampleColumn], schema: SchemaRef, now: Timestamp) -> Self {
        let builder = |column: SampleColumn| match column.data_type() {
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
                    SampleColumn::CheckedAt => row.checked_at.as_nanos(),
                    _ => row.sample.time.as_nanos(),
                }),
            }
        }
    }

    /// Adds a row whose columns are all `NULL`.
    pub(crate) fn push_nulls(&mut self) {
        self.rows += 1;
        for (_, builder) in &mut self.columns {
            match builder {
                Builder::Text(texts) => texts.append_null(),
                Builder::Number(numbers) => numbers.append_null(),
                Builder::Time(times) => times.append_null(),
            }
        }
    }

    /// Returns the rows so far, and starts the next batch.
    pub(crate) fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let arrays = self.columns.iter_mut().map(|(_, builder)| -> ArrayRef {
            match builder {
                Builder::Text(texts) => Arc::new(texts.finish()),
                Builder::Number(numbers) => Arc::new(numbers.finish()),
                Builder::Time(times) => Arc::new(times.finish()),
            }
        });
        let options =
            RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays.collect(), &options)
    }
}

fn number(column: SampleColumn, row: &Row<'_>, now: Timestamp) -> Option<f64> {
    match column {
        SampleColumn::Age => Some(row.age(now).as_secs_f64()),
        SampleColumn::Bound => match row.sample.origin {
            Origin::Predicted { bound } => Some(bound),
            _ => None,
        },
        _ => value(row),
    }
}

fn push_text(column: SampleColumn, row: &Row<'_>, texts: &mut StringBuilder) {
    let topic = row.of.topic;
    match column {
        SampleColumn::Topic => texts.append_value(topic.as_str()),
        SampleColumn::Node => texts.append_value(topic.node()),
        SampleColumn::Metric => texts.append_value(topic.metric()),
        SampleColumn::Unit => texts.append_value(row.of.unit.as_str()),
        SampleColumn::Kind => texts.append_value(row.of.kind.name()),
        SampleColumn::Origin => texts.append_value(match row.sample.origin {
            Origin::Measured => "measured",
            Origin::Predicted { .. } => "predicted",
            Origin::Unknown => "unknown",
        }),
        SampleColumn::Publisher => texts.append_value(row.of.publisher),
        SampleColumn::Text => match &row.sample.value {
            Value::Structured(structured) => texts.append_value(structured.to_string()),
            _ => texts.append_null(),
        },
        SampleColumn::Family => {
            texts.append_option(schema::lookup_in_family(topic).map(|(family, _)| family.name));
        }
        SampleColumn::Instance => texts.append_option(instance(topic)),
        _ => texts.append_null(),
    }
}
