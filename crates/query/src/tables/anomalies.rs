//! `anomalies`: the events that detectors told, a row each, with what they say as columns.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Float64Builder, RecordBatch, StringBuilder, TimestampNanosecondBuilder, UInt64Builder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::error::Result;
use skopos_model::{Structured, Timestamp, Value};

use super::columns::UTC;
use super::made::{Asked, Rows};
use super::samples::Which;
use crate::source::{Row, Source, Wanted};

/// Columns that are texts of the event, by their names in it.
const TEXTS: [&str; 4] = ["topic", "rule", "detector", "state"];

/// Columns that are numbers of the event, with where they are in it.
const NUMBERS: [(&str, &str); 5] = [
    ("came", "/came"),
    ("expected", "/expected/value"),
    ("low", "/expected/low"),
    ("high", "/expected/high"),
    ("score", "/score"),
];

/// What detectors told.
#[derive(Clone)]
pub(crate) struct AnomalyTable {
    source: Arc<dyn Source>,
}

/// The columns in the making.
#[derive(Default)]
struct Events {
    nodes: StringBuilder,
    texts: [StringBuilder; TEXTS.len()],
    times: [TimestampNanosecondBuilder; 2],
    numbers: [Float64Builder; NUMBERS.len()],
    suppressed: UInt64Builder,
    whole: StringBuilder,
}

impl AnomalyTable {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self { source }
    }

    fn batch(&self, times: RangeInclusive<Timestamp>) -> Result<RecordBatch> {
        let part = Which::Below("anomaly");
        let mut events = Events::default();
        // Conditions on `topic` are about whose value it was, not about where the event is.
        self.source.samples(&Wanted::All, times, &mut |row: &Row<'_>| {
            if part.selects(row.of.topic)
                && let Value::Structured(event) = &row.sample.value
            {
                events.push(row, event);
            }
        });
        Ok(RecordBatch::try_new(self.schema(), events.finish())?)
    }
}

impl Events {
    fn push(&mut self, row: &Row<'_>, event: &Structured) {
        let fields = event.as_json();
        self.nodes.append_value(row.of.topic.node());
        for (name, texts) in TEXTS.iter().zip(&mut self.texts) {
            texts.append_option(fields.get(name).and_then(|text| text.as_str()));
        }
        let since = fields.get("since_ns").and_then(|time| time.as_i64());
        self.times[0].append_value(row.sample.time.as_nanos());
        self.times[1].append_option(since);
        for ((_, place), numbers) in NUMBERS.iter().zip(&mut self.numbers) {
            numbers.append_option(fields.pointer(place).and_then(|number| number.as_f64()));
        }
        self.suppressed.append_option(fields.get("suppressed").and_then(|count| count.as_u64()));
        self.whole.append_value(event.to_string());
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.nodes.finish())];
        columns.extend(self.texts.iter_mut().map(|texts| Arc::new(texts.finish()) as ArrayRef));
        for mut times in self.times {
            columns.push(Arc::new(times.finish().with_timezone(UTC)));
        }
        columns
            .extend(self.numbers.iter_mut().map(|numbers| Arc::new(numbers.finish()) as ArrayRef));
        columns.push(Arc::new(self.suppressed.finish()));
        columns.push(Arc::new(self.whole.finish()));
        columns
    }
}

impl fmt::Debug for AnomalyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnomalyTable")
    }
}

impl Rows for AnomalyTable {
    fn schema(&self) -> SchemaRef {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let time = DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into()));
        let mut fields = vec![text("node")];
        fields.extend(TEXTS.map(text));
        fields.extend(["time", "since"].map(|name| Field::new(name, time.clone(), true)));
        fields.extend(NUMBERS.map(|(name, _)| Field::new(name, DataType::Float64, true)));
        fields.push(Field::new("suppressed", DataType::UInt64, true));
        fields.push(text("text"));
        Arc::new(Schema::new(fields))
    }

    fn batches(&self, asked: &Asked) -> Vec<Result<RecordBatch>> {
        asked.of(self.batch(asked.times.clone()))
    }
}
