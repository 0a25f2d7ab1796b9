//! What all tables have in common: their rows are made when a plan is executed, so that a plan that is
//! executed again shows what is there then.

use std::fmt;
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

use super::pushdown;
use crate::source::Wanted;

/// What makes the rows of a table.
pub(crate) trait Rows: Clone + fmt::Debug + Send + Sync + 'static {
    /// All columns.
    fn schema(&self) -> SchemaRef;

    /// The rows that are asked for, or more of them, with the columns that are asked for.
    fn batches(&self, asked: &Asked) -> Vec<Result<RecordBatch>>;
}

/// What one scan asks of a table.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The topics that the conditions leave.
    pub(crate) wanted: Wanted,
    /// Subset columns, in this order.
    pub(crate) columns: Vec<usize>,
    schema: SchemaRef,
}

impl Asked {
    /// The columns that are asked for, of a batch that has all.
    pub(crate) fn of(&self, whole: Result<RecordBatch>) -> Vec<Result<RecordBatch>> {
        vec![whole.and_then(|batch| Ok(batch.project(&self.columns)?))]
    }
}

/// A table of such rows.
#[derive(Debug)]
pub(crate) struct Made<R>(pub(crate) R);

#[async_trait]
impl<R: Rows> TableProvider for Made<R> {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
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
        let whole = self.0.schema();
        let columns = projection.cloned().unwrap_or_else(|| (0..whole.fields().len()).collect());
        let schema = Arc::new(whole.project(&columns)?);
        let asked = Asked { wanted: pushdown::topics(filters), columns, schema: schema.clone() };
        let limit = limit.filter(|_| filters.is_empty());
        let partitions: Vec<Arc<dyn PartitionStream>> =
            vec![Arc::new(Scan { rows: self.0.clone(), asked })];
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, [], false, limit)?))
    }

    /// More may be made than is asked for, so what is made is filtered again.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}

#[derive(Debug)]
struct Scan<R> {
    rows: R,
    asked: Asked,
}

impl<R: Rows> PartitionStream for Scan<R> {
    fn schema(&self) -> &SchemaRef {
        &self.asked.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = futures_util::stream::iter(self.rows.batches(&self.asked));
        Box::pin(RecordBatchStreamAdapter::new(self.asked.schema.clone(), batches))
    }
}
