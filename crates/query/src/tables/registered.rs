//! A registered table in a plan of DataFusion.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::column::schema_of;
use crate::context::ExecutionContext;
use crate::divided::PiecesExec;
use crate::rows::{checked, failed};
use crate::scan::Scan;
use crate::table::{Fingerprint, Table};
use crate::tables::pushdown;

/// A registered table in a logical plan.
#[derive(Clone, Debug)]
pub(crate) struct RegisteredTable {
    table: Arc<dyn Table>,
    schema: SchemaRef,
}

impl RegisteredTable {
    pub(crate) fn new(table: Arc<dyn Table>) -> Self {
        let schema = schema_of(table.columns());
        Self { table, schema }
    }

    pub(crate) fn table(&self) -> &Arc<dyn Table> {
        &self.table
    }

    /// Returns the scan that a plan makes of this table.
    pub(crate) fn scan_of(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Scan> {
        let all = 0..self.schema.fields().len();
        let columns = projection.cloned().unwrap_or_else(|| all.collect());
        let schema = Arc::new(self.schema.project(&columns)?);
        Ok(Scan {
            schema,
            columns,
            topics: pushdown::topic_filter(filters),
            times: pushdown::all_times(filters, &self.schema),
            equals: pushdown::all_equals(filters),
            numbers: pushdown::all_numbers(filters, &self.schema),
            calls: pushdown::all_calls(filters),
            // Conditions that are applied after the scan leave out rows, so a limit cannot be applied before.
            limit: limit.filter(|_| filters.iter().all(|filter| self.is_exact(filter))),
            context: None,
        })
    }

    fn is_exact(&self, filter: &Expr) -> bool {
        pushdown::is_exact(filter, self.table.exact())
    }

    /// Returns the order of the rows, if the column that they are sorted by is among the wanted ones.
    fn order(&self, wanted: &SchemaRef) -> Option<LexOrdering> {
        let by = self.table.latest_first()?;
        let (at, _) = wanted.column_with_name(by)?;
        let options = SortOptions { descending: true, nulls_first: false };
        LexOrdering::new([PhysicalSortExpr::new(Arc::new(Column::new(by, at)), options)])
    }

    pub(crate) fn fingerprint(&self, scan: &Scan) -> Fingerprint {
        self.table.fingerprint(scan)
    }
}

impl RegisteredTable {
    fn plan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let scan = self.scan_of(projection, filters, limit)?;
        if let Some(in_pieces) = self.table.in_pieces() {
            // The caller decides which pieces there are, so they are made for each execution.
            let scan = match state.config().get_extension::<ExecutionContext>() {
                Some(context) => scan.within(context),
                None => scan,
            };
            let pieces = in_pieces.pieces(&scan).map_err(failed)?;
            let streams = state.config().target_partitions();
            return Ok(Arc::new(PiecesExec::new(self.table.clone(), scan, pieces, streams)));
        }
        let (schema, limit) = (scan.schema.clone(), scan.limit);
        let partition = TableScan { table: self.table.clone(), scan };
        let partitions: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(partition)];
        let order = self.order(&schema);
        let scan = StreamingTableExec::try_new(schema, partitions, None, order, false, limit)?;
        Ok(Arc::new(scan))
    }
}

impl TableProvider for RegisteredTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    scan_by_plan!();

    /// A table may return more rows than asked for, so every condition is applied again that is not exact.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match self.is_exact(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Inexact,
        };
        Ok(filters.iter().map(support).collect())
    }
}

/// A scan of a registered table. Rows are read when the plan is executed, so a plan that is executed again
/// returns the rows of that time.
struct TableScan {
    table: Arc<dyn Table>,
    scan: Scan,
}

impl fmt::Debug for TableScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scan { times, equals, limit, .. } = &self.scan;
        let mut shown = f.debug_struct(self.table.name());
        shown.field("times", times).field("equals", equals).field("limit", limit);
        shown.finish_non_exhaustive()
    }
}

impl PartitionStream for TableScan {
    fn schema(&self) -> &SchemaRef {
        &self.scan.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let scan = self.scan.within(ExecutionContext::of(&context));
        let (table, schema) = (self.table.clone(), self.scan.schema.clone());
        let begin = async move {
            let name = table.name().to_owned();
            let rows = table.scan(&scan).map_err(failed)?.into_stream();
            let schema = scan.schema;
            Ok::<_, DataFusionError>(
                rows.map(move |batch| checked(&name, &batch.map_err(failed)?, &schema)),
            )
        };
        let batches = stream::once(begin).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }
}
