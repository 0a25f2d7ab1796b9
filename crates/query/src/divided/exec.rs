//! The scan of a table in pieces, as a step of a plan.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::context::ExecutionContext;
use crate::rows::{checked, failed};
use crate::scan::Scan;
use crate::table::Table;

/// The fewest streams of a scan: with one, an aggregation would have no first step that other hubs can do.
const MIN_PARTITIONS: usize = 2;

/// Reads pieces of a table, in several streams.
#[derive(Debug)]
pub(crate) struct PiecesExec {
    pub(super) table: Arc<dyn Table>,
    pub(super) scan: Scan,
    /// The pieces of each stream.
    pub(super) partitions: Vec<Vec<Vec<u8>>>,
    properties: Arc<PlanProperties>,
}

impl PiecesExec {
    /// Returns a scan of pieces in about `streams` streams.
    pub(crate) fn new(
        table: Arc<dyn Table>,
        scan: Scan,
        pieces: Vec<Vec<u8>>,
        streams: usize,
    ) -> Self {
        Self::of(table, scan, dealt(pieces, streams.max(MIN_PARTITIONS)))
    }

    pub(super) fn of(table: Arc<dyn Table>, scan: Scan, partitions: Vec<Vec<Vec<u8>>>) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(scan.schema.clone()),
            Partitioning::UnknownPartitioning(partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self { table, scan, partitions, properties }
    }

    /// Returns the number of pieces.
    pub(super) fn count(&self) -> usize {
        self.partitions.iter().map(Vec::len).sum()
    }

    /// Returns true if other hubs can read the pieces.
    pub(super) fn can_be_shared(&self) -> bool {
        let is_for_here = |piece: &Vec<u8>| {
            self.table.in_pieces().is_some_and(|in_pieces| in_pieces.is_for_here(piece))
        };
        !self.partitions.iter().flatten().any(is_for_here)
    }

    /// Returns scans of as many shares of the pieces, each in as many streams as this one.
    pub(super) fn shares(&self, count: usize) -> Vec<Self> {
        let pieces: Vec<_> = self.partitions.iter().flatten().cloned().collect();
        let shares = dealt(pieces, count).into_iter();
        let scan = |share| {
            let partitions = dealt(share, self.partitions.len());
            Self::of(self.table.clone(), self.scan.clone(), partitions)
        };
        shares.map(scan).collect()
    }
}

/// Deals pieces out to `hands`, as cards: neighbours are about equally large.
fn dealt(pieces: Vec<Vec<u8>>, hands: usize) -> Vec<Vec<Vec<u8>>> {
    let mut dealt = vec![Vec::new(); hands.max(1)];
    let count = dealt.len();
    for (at, piece) in pieces.into_iter().enumerate() {
        dealt[at % count].push(piece);
    }
    dealt
}

impl DisplayAs for PiecesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pieces, streams) = (self.count(), self.partitions.len());
        write!(f, "PiecesExec: {}, {pieces} pieces in {streams} streams", self.table.name())
    }
}

impl ExecutionPlan for PiecesExec {
    fn name(&self) -> &str {
        "PiecesExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let pieces = self.partitions.get(partition).cloned().unwrap_or_default();
        let scan = self.scan.within(ExecutionContext::of(&context));
        let (table, schema) = (self.table.clone(), self.scan.schema.clone());
        let rows = stream::iter(pieces).map(move |piece| {
            let none = || DataFusionError::Internal("the table has no pieces".to_owned());
            let in_pieces = table.in_pieces().ok_or_else(none)?;
            let rows = in_pieces.rows(&piece, &scan).map_err(failed)?.into_stream();
            let (name, schema) = (table.name().to_owned(), scan.schema.clone());
            Ok::<_, DataFusionError>(
                rows.map(move |batch| checked(&name, &batch.map_err(failed)?, &schema)),
            )
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows.try_flatten())))
    }
}
