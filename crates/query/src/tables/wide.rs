//! A wide table for each family of facts: a row for each node and instance, a column for each metric.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, Float64Builder, RecordBatch, StringBuilder, TimestampNanosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use skopos_model::schema::{self, Family};

use super::columns::{Column, UTC, instance, value};
use super::pushdown;
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

#[async_trait]
impl TableProvider for WideTable {
    fn schema(&self) -> SchemaRef {
        let metrics =
            self.family.metrics.iter().map(|m| Field::new(m.name, DataType::Float64, true));
        let keys = KEYS.iter().map(|key| key.field());
        Arc::new(Schema::new(keys.chain(metrics).collect::<Vec<_>>()))
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
        let scan =
            Scan { schema: self.schema(), table: self.clone(), wanted: pushdown::topics(filters) };
        let schema = scan.schema.clone();
        let partitions: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(scan)];
        let plan = StreamingTableExec::try_new(schema, partitions, projection, [], false, None)?;
        Ok(Arc::new(plan))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}

struct Scan {
    schema: SchemaRef,
    table: WideTable,
    wanted: Wanted,
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.table, self.wanted)
    }
}

/// One row: when it was looked at last, and a value for each metric.
struct Wide {
    checked_at: i64,
    values: Vec<Option<f64>>,
}

impl Scan {
    fn batch(&self) -> Result<RecordBatch> {
        let family = self.table.family;
        let mut rows: BTreeMap<(String, Option<String>), Wide> = BTreeMap::new();
        self.table.source.latest(&self.wanted, &mut |row: &Row<'_>| {
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
        Ok(RecordBatch::try_new(self.schema.clone(), keys.into_iter().chain(values).collect())?)
    }
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batch = futures_util::stream::iter([self.batch()]);
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batch))
    }
}
