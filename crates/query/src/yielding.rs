//! Joins that yield their thread, so that a query can be cancelled.
//!
//! A task can only be cancelled where it yields, and DataFusion's tasks yield after some batches of input.
//! A join computes millions of rows from one batch before it reads the next, so neither a deadline nor a
//! client that disconnects would end it. Here the output of a join yields by the clock. A nested loop, whose
//! condition may select no row for hours, reads slices of its input that take it milliseconds each.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{
    Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion,
};
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures_util::{Stream, StreamExt as _};

/// Time after which a join yields: far less than a person notices.
const TURN: Duration = Duration::from_millis(10);

/// Rows of the first slice. A nested loop compares each of them with every row of its other side, which may be
/// millions.
const FIRST_ROWS: usize = 1;

/// Rows of the largest slice. The time that a slice takes decides the size of the next.
const MAX_ROWS: usize = 8192;

/// Puts [`YieldingExec`] above joins, and below nested loops.
#[derive(Debug)]
pub(crate) struct LetJoinsYield;

impl PhysicalOptimizerRule for LetJoinsYield {
    fn name(&self) -> &str {
        "let_joins_yield"
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let is_join = ["Join", "Recursive"].iter().any(|part| plan.name().contains(part));
            if !is_join {
                return Ok(Transformed::no(plan));
            }
            let mut join = plan;
            if join.is::<NestedLoopJoinExec>() {
                let mut children: Vec<_> = join.children().into_iter().cloned().collect();
                if let Some(probed) = children.get_mut(1) {
                    *probed = Arc::new(YieldingExec { input: probed.clone(), in_slices: true });
                }
                let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                join = join.replace_children(children, options)?;
            }
            Ok(Transformed::yes(Arc::new(YieldingExec { input: join, in_slices: false }) as _))
        })
        .data()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the rows of its input, and yields by the clock.
#[derive(Debug)]
struct YieldingExec {
    input: Arc<dyn ExecutionPlan>,
    in_slices: bool,
}

impl DisplayAs for YieldingExec {
    fn fmt_as(&self, _type: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for YieldingExec {
    fn name(&self) -> &str {
        "YieldingExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let in_slices = self.in_slices;
        Ok(match children.pop() {
            Some(input) => Arc::new(Self { input, in_slices }),
            None => self,
        })
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let slice_rows = self.in_slices.then_some(FIRST_ROWS);
        let input = self.input.execute(partition, context)?;
        Ok(Box::pin(Turns { input, rest: None, slice_rows, began: None, returned: None }))
    }
}

struct Turns {
    input: SendableRecordBatchStream,
    /// The rest of a batch that is returned in slices.
    rest: Option<RecordBatch>,
    /// Number of rows of the next slice; `None` for whole batches.
    slice_rows: Option<usize>,
    /// Time at which this turn began.
    began: Option<Instant>,
    /// Time at which the last slice was returned.
    returned: Option<Instant>,
}

impl Turns {
    /// Returns the first slice of a batch, and keeps the rest. The size of a slice follows from the time that
    /// the last one took.
    fn slice(&mut self, batch: RecordBatch) -> RecordBatch {
        let Some(mut most) = self.slice_rows else { return batch };
        if let Some(took) = self.returned.map(|at| at.elapsed()) {
            if took > TURN {
                most = (most / 4).max(1);
            } else if took < TURN / 4 {
                most = (most * 2).min(MAX_ROWS);
            }
        }
        self.slice_rows = Some(most);
        let rows = batch.num_rows();
        let first = batch.slice(0, most.min(rows));
        if rows > most {
            self.rest = Some(batch.slice(most, rows - most));
        }
        first
    }
}

impl Stream for Turns {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let began = *self.began.get_or_insert_with(Instant::now);
        if began.elapsed() > TURN {
            self.began = None;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = match self.rest.take() {
            Some(rest) => Poll::Ready(Some(Ok(rest))),
            None => self.input.poll_next_unpin(context),
        };
        match next {
            Poll::Ready(Some(Ok(batch))) => {
                let slice = self.slice(batch);
                self.returned = Some(Instant::now());
                Poll::Ready(Some(Ok(slice)))
            }
            Poll::Pending => {
                self.began = None;
                self.returned = None;
                Poll::Pending
            }
            end => end,
        }
    }
}

impl RecordBatchStream for Turns {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}
