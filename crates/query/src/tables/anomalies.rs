//! `anomalies`: the events that detectors told, a row each, with what they say as columns; as far back as
//! `samples` reaches.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    Array as _, ArrayRef, AsArray as _, Float64Builder, RecordBatch, StringBuilder,
    TimestampNanosecondBuilder, UInt64Builder,
};
use datafusion::arrow::datatypes::{
    DataType, Field, Schema, SchemaRef, TimeUnit, TimestampNanosecondType,
};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures_util::StreamExt as _;
use skopos_model::Structured;
use tokio::sync::OnceCell;

use super::columns::{Column, UTC, schema_of};
use super::pushdown;
use super::scan::{Ask, Scan};
use super::subset::Subset;
use crate::source::Source;

/// What of a sample an event is made of.
const READ: &[Column] = &[Column::Node, Column::Time, Column::Text];

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
}

/// The events that samples tell.
fn events(samples: &RecordBatch, schema: SchemaRef) -> Result<RecordBatch> {
    let (nodes, texts) =
        (samples.column(0).as_string::<i32>(), samples.column(2).as_string::<i32>());
    let times = samples.column(1).as_primitive::<TimestampNanosecondType>();
    let mut events = Events::default();
    for row in (0..samples.num_rows()).filter(|row| texts.is_valid(*row)) {
        // What is there was checked when it came in.
        if let Ok(event) = Structured::from_json(texts.value(row)) {
            events.push(nodes.value(row), times.value(row), &event);
        }
    }
    Ok(RecordBatch::try_new(schema, events.finish())?)
}

impl Events {
    fn push(&mut self, node: &str, time: i64, event: &Structured) {
        let fields = event.as_json();
        self.nodes.append_value(node);
        for (name, texts) in TEXTS.iter().zip(&mut self.texts) {
            texts.append_option(fields.get(name).and_then(|text| text.as_str()));
        }
        let since = fields.get("since_ns").and_then(|time| time.as_i64());
        self.times[0].append_value(time);
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

#[async_trait]
impl TableProvider for AnomalyTable {
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

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let whole = self.schema();
        let all: Vec<usize> = (0..whole.fields().len()).collect();
        let columns = projection.unwrap_or(&all).clone();
        // A condition on `topic` is about whose value it was, and not about where the event is.
        let is_of_node = |filter: &&Expr| filter.column_refs().iter().all(|c| c.name == "node");
        let of_node: Vec<Expr> = filters.iter().filter(is_of_node).cloned().collect();
        let ask = Ask {
            source: self.source.clone(),
            which: Subset::Below("anomaly"),
            wanted: pushdown::topics(&of_node),
            times: pushdown::times(filters),
            filter: None,
        };
        let (ask, work) = (Arc::new(ask), Arc::new(OnceCell::new()));
        let samples = Arc::new(Scan { schema: schema_of(READ), columns: READ.into(), ask, work });
        let schema = Arc::new(whole.project(&columns)?);
        let scan = Told { samples, whole, columns, schema: schema.clone() };
        let partitions: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(scan)];
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, [], false, None)?))
    }

    /// More may be made than is asked for, so what is made is filtered again.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}

/// A scan of samples, shown as the events that they tell.
#[derive(Debug)]
struct Told {
    samples: Arc<Scan>,
    whole: SchemaRef,
    /// Subset of all columns.
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl PartitionStream for Told {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (whole, columns) = (self.whole.clone(), self.columns.clone());
        let told = self.samples.execute(context).map(move |samples| {
            let events = events(&samples?, whole.clone())?;
            Ok(events.project(&columns)?)
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), told))
    }
}
