//! A wide table for each family of facts: a row for each node and instance, a column for each metric.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Float64Builder, RecordBatch, StringBuilder, TimestampNanosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::Result;
use skopos_model::schema::{self, Family};

use super::columns::{Column, UTC, instance, value};
use super::made::{Asked, Rows};
use crate::source::{Row, Source, Wanted};

/// The columns before those of the metrics.
const KEYS: [Column; 3] = [Column::Node, Column::Instance, Column::CheckedAt];

/// The latest values of one family.
#[derive(Clone)]
pub(crate) struct WideTable {
    source: Arc<dyn Source>,
    family: &'static Family,
}

impl WideTable {
    pub(crate) fn new(source: Arc<dyn Source>, family: &'static Family) -> Self {
        Self { source, family }
    }
}

impl fmt::Debug for WideTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WideTable({})", self.family.name)
    }
}

impl Rows for WideTable {
    fn schema(&self) -> SchemaRef {
        let metrics =
            self.family.metrics.iter().map(|m| Field::new(m.name, DataType::Float64, true));
        let keys = KEYS.iter().map(|key| key.field());
        Arc::new(Schema::new(keys.chain(metrics).collect::<Vec<_>>()))
    }

    fn batches(&self, asked: &Asked) -> Vec<Result<RecordBatch>> {
        asked.of(self.batch(&asked.wanted))
    }
}

/// One row: when it was looked at last, and a value for each metric.
struct Wide {
    checked_at: i64,
    values: Vec<Option<f64>>,
}

impl WideTable {
    fn batch(&self, wanted: &Wanted) -> Result<RecordBatch> {
        let family = self.family;
        let mut rows: BTreeMap<(String, Option<String>), Wide> = BTreeMap::new();
        self.source.latest(wanted, &mut |row: &Row<'_>| {
            let topic = row.of.topic;
            let Some((of, metric)) = schema::lookup_in_family(topic) else { return };
            if of.name != family.name {
                return;
            }
            let Some(at) = family.metrics.iter().position(|m| m.name == metric.name) else {
                return;
            };
            let instance = instance(topic.as_str(), topic).map(str::to_owned);
            let wide = rows.entry((topic.node().to_owned(), instance)).or_insert_with(|| Wide {
                checked_at: i64::MIN,
                values: vec![None; family.metrics.len()],
            });
            wide.checked_at = wide.checked_at.max(row.checked_at.as_nanos());
            wide.values[at] = value(row);
        });
        let (mut nodes, mut instances) = (StringBuilder::new(), StringBuilder::new());
        let mut times = TimestampNanosecondBuilder::new().with_timezone(UTC);
        let mut values: Vec<_> = family.metrics.iter().map(|_| Float64Builder::new()).collect();
        for ((node, instance), wide) in rows {
            nodes.append_value(node);
            instances.append_option(instance);
            times.append_value(wide.checked_at);
            for (builder, value) in values.iter_mut().zip(wide.values) {
                builder.append_option(value);
            }
        }
        let keys: [ArrayRef; 3] =
            [Arc::new(nodes.finish()), Arc::new(instances.finish()), Arc::new(times.finish())];
        let values = values.iter_mut().map(|builder| Arc::new(builder.finish()) as ArrayRef);
        Ok(RecordBatch::try_new(self.schema(), keys.into_iter().chain(values).collect())?)
    }
}
