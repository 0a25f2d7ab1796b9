//! Tables whose rows are samples: `latest`, `samples`, those of a part of the topics, and the table
//! of one topic.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use skopos_model::{Timestamp, Topic};

use super::columns::{Batch, Column, schema_of};
use super::pushdown;
use crate::source::{Row, Source, Wanted};

/// Rows of a batch, as DataFusion has them.
const BATCH_ROWS: usize = 8192;

/// Columns of `latest` and of the parts of it.
pub(crate) const LATEST: &[Column] = &[
    Column::Topic,
    Column::Node,
    Column::Family,
    Column::Instance,
    Column::Metric,
    Column::Value,
    Column::Text,
    Column::Unit,
    Column::Kind,
    Column::Origin,
    Column::Bound,
    Column::Time,
    Column::CheckedAt,
    Column::Age,
    Column::Publisher,
];

/// Columns of `samples`.
pub(crate) const SAMPLES: &[Column] = &[
    Column::Topic,
    Column::Node,
    Column::Family,
    Column::Instance,
    Column::Metric,
    Column::Time,
    Column::Value,
    Column::Text,
    Column::Unit,
    Column::Kind,
    Column::Origin,
    Column::Bound,
];

/// Columns of the table of one topic: what the paper calls a tuple of a vertex.
pub(crate) const OF_A_TOPIC: &[Column] = &[
    Column::PaperTimestamp,
    Column::PaperMetric,
    Column::Origin,
    Column::Bound,
    Column::Text,
    Column::Unit,
];

/// A table of samples.
#[derive(Clone)]
pub(crate) struct SampleTable {
    source: Arc<dyn Source>,
    columns: Vec<Column>,
    /// Only the latest of each topic.
    is_latest: bool,
    part: Part,
}

/// Which topics a table is of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// Every one.
    All,
    /// This one.
    One(Topic),
    /// Those whose second segment is this, in front of which only the node stands.
    Below(&'static str),
}

impl Part {
    fn selects(&self, topic: &Topic) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => topic == one,
            Self::Below(name) => topic.segments().nth(1) == Some(name),
        }
    }
}

impl SampleTable {
    pub(crate) fn latest(source: Arc<dyn Source>, part: Part) -> Self {
        Self { source, columns: LATEST.to_vec(), is_latest: true, part }
    }

    pub(crate) fn samples(source: Arc<dyn Source>, part: Part) -> Self {
        Self { source, columns: SAMPLES.to_vec(), is_latest: false, part }
    }

    pub(crate) fn of_topic(source: Arc<dyn Source>, topic: Topic) -> Self {
        let part = Part::One(topic);
        Self { source, columns: OF_A_TOPIC.to_vec(), is_latest: false, part }
    }
}

impl fmt::Debug for SampleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleTable").field("part", &self.part).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for SampleTable {
    fn schema(&self) -> SchemaRef {
        schema_of(&self.columns)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = match projection {
            Some(wanted) => wanted.iter().map(|at| self.columns[*at]).collect(),
            None => self.columns.clone(),
        };
        let wanted = match &self.part {
            Part::One(topic) => Wanted::These(vec![topic.clone()]),
            _ => pushdown::topics(filters),
        };
        let scan = Scan {
            schema: schema_of(&columns),
            table: Self { columns, ..self.clone() },
            wanted,
            times: pushdown::times(filters),
        };
        let (schema, limit) = (scan.schema.clone(), limit.filter(|_| filters.is_empty()));
        let partitions: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(scan)];
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, [], false, limit)?))
    }

    /// A source may show more than is wanted, so what it shows is filtered again.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}

/// One scan, read when it is executed: a plan may be executed again and then shows what is there then.
struct Scan {
    schema: SchemaRef,
    table: SampleTable,
    wanted: Wanted,
    times: RangeInclusive<Timestamp>,
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, times, .. } = self;
        f.debug_struct("Scan").field("wanted", wanted).field("times", times).finish_non_exhaustive()
    }
}

impl Scan {
    fn batches(&self) -> Vec<Result<RecordBatch>> {
        let SampleTable { source, columns, is_latest, part } = &self.table;
        let mut batch = Batch::new(columns, source.now());
        let mut batches = Vec::new();
        let mut visit = |row: &Row<'_>| {
            if !part.selects(row.of.topic) {
                return;
            }
            batch.push(row);
            if batch.rows() == BATCH_ROWS {
                batches.push(batch.take());
            }
        };
        if *is_latest {
            source.latest(&self.wanted, &mut visit);
        } else {
            source.samples(&self.wanted, self.times.clone(), &mut visit);
        }
        if batch.rows() > 0 {
            batches.push(batch.take());
        }
        batches
    }
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = futures_util::stream::iter(self.batches());
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}
