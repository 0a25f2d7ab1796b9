//! Tables that are small and made whole: `topics` and `nodes`.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, TimestampNanosecondArray,
    UInt64Array,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::error::Result;
use skopos_model::schema;

use super::columns::{UTC, instance};
use super::made::{Asked, Rows};
use crate::source::{Described, Source, Wanted};

/// Subset of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Small {
    /// What is measured, with what it means.
    Topics,
    /// The nodes that are known.
    Nodes,
}

#[derive(Clone)]
pub(crate) struct SmallTable {
    which: Small,
    schema: SchemaRef,
    source: Arc<dyn Source>,
}

impl SmallTable {
    pub(crate) fn new(source: Arc<dyn Source>, which: Small) -> Self {
        let time = || DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into()));
        let text = |name| Field::new(name, DataType::Utf8, true);
        let fields = match which {
            Small::Topics => TOPICS.map(text).to_vec(),
            Small::Nodes => vec![
                text("node"),
                Field::new("alive", DataType::Boolean, true),
                Field::new("topics", DataType::UInt64, true),
                Field::new("seen_at", time(), true),
                Field::new("lost_batches", DataType::UInt64, true),
                Field::new("malformed_batches", DataType::UInt64, true),
                Field::new("clock_offset", DataType::Float64, true),
            ],
        };
        Self { which, schema: Arc::new(Schema::new(fields)), source }
    }

    fn batch(&self) -> Result<RecordBatch> {
        let columns = match self.which {
            Small::Topics => self.topics(),
            Small::Nodes => self.nodes(),
        };
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }

    fn topics(&self) -> Vec<ArrayRef> {
        let mut columns: [Vec<Option<String>>; TOPICS.len()] = Default::default();
        self.source.topics(&Wanted::All, &mut |described: &Described<'_>| {
            let topic = described.topic;
            let known = schema::lookup_in_family(topic);
            let row = [
                Some(topic.as_str()),
                Some(topic.node()),
                known.map(|(family, _)| family.name),
                instance(topic.as_str(), topic),
                Some(topic.metric()),
                Some(described.unit.as_str()),
                Some(described.kind.name()),
                Some(described.value_type.name()),
                known.map(|(_, metric)| metric.help),
                known.map(|(family, _)| family.source),
                Some(described.publisher),
            ];
            for (column, cell) in columns.iter_mut().zip(row) {
                column.push(cell.map(str::to_owned));
            }
        });
        columns.into_iter().map(|column| Arc::new(StringArray::from(column)) as ArrayRef).collect()
    }

    fn nodes(&self) -> Vec<ArrayRef> {
        let nodes = self.source.nodes();
        let names = nodes.iter().map(|node| Some(node.name.as_str()));
        let times = nodes.iter().map(|node| Some(node.seen_at.as_nanos()));
        vec![
            Arc::new(names.collect::<StringArray>()),
            Arc::new(nodes.iter().map(|node| Some(node.alive)).collect::<BooleanArray>()),
            Arc::new(UInt64Array::from_iter_values(nodes.iter().map(|node| node.topics))),
            Arc::new(times.collect::<TimestampNanosecondArray>().with_timezone(UTC)),
            Arc::new(UInt64Array::from_iter_values(nodes.iter().map(|node| node.lost_batches))),
            Arc::new(UInt64Array::from_iter_values(
                nodes.iter().map(|node| node.malformed_batches),
            )),
            // In seconds, as ages are.
            Arc::new(
                nodes
                    .iter()
                    .map(|node| node.clock_offset.map(|nanos| nanos as f64 / 1e9))
                    .collect::<Float64Array>(),
            ),
        ]
    }
}

/// Columns of `topics`, all texts.
const TOPICS: [&str; 11] = [
    "topic",
    "node",
    "family",
    "instance",
    "metric",
    "unit",
    "kind",
    "value_type",
    "help",
    "source",
    "publisher",
];

impl fmt::Debug for SmallTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SmallTable({:?})", self.which)
    }
}

impl Rows for SmallTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn batches(&self, asked: &Asked) -> Vec<Result<RecordBatch>> {
        asked.of(self.batch())
    }
}
