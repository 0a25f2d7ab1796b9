//! Queries that can be ended: joins let go of their thread now and then.
//!
//! A task can only be ended where it lets go, and DataFusion's do so when they have read some batches.
//! A join computes millions of rows from one batch before it reads the next, so nothing would end it:
//! no deadline, and nobody who goes away. Here its output lets go by the clock, and a nested loop, whose
//! condition may let nothing through for hours, is fed in slices that take it milliseconds each.

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

/// Time after which a thread is let go: far less than anybody waits for an end.
const TURN: Duration = Duration::from_millis(10);

/// Rows of the first slice, and the most that one has. How long one takes says how long the next is.
const FIRST_ROWS: usize = 16;
const MOST_ROWS: usize = 8192;

/// Puts [`Paced`] around and under joins.
#[derive(Debug)]
pub(crate) struct Pace;

impl PhysicalOptimizerRule for Pace {
    fn name(&self) -> &str {
        "pace"
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let is_long = ["Join", "Recursive"].iter().any(|part| plan.name().contains(part));
            if !is_long {
                return Ok(Transformed::no(plan));
            }
            let mut paced = plan;
            if paced.is::<NestedLoopJoinExec>() {
                let mut children: Vec<_> = paced.children().into_iter().cloned().collect();
                if let Some(probed) = children.get_mut(1) {
                    *probed = Arc::new(Paced { input: probed.clone(), in_slices: true });
                }
                let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
                paced = paced.replace_children(children, options)?;
            }
            Ok(Transformed::yes(Arc::new(Paced { input: paced, in_slices: false }) as _))
        })
        .data()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Shows what its input does, and lets go now and then.
#[derive(Debug)]
struct Paced {
    input: Arc<dyn ExecutionPlan>,
    in_slices: bool,
}

impl DisplayAs for Paced {
    fn fmt_as(&self, _type: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Paced")
    }
}

impl ExecutionPlan for Paced {
    fn name(&self) -> &str {
        "Paced"
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
        let most = if self.in_slices { FIRST_ROWS } else { usize::MAX };
        Ok(Box::pin(Turns {
            input: self.input.execute(partition, context)?,
            rest: None,
            most,
            began: None,
            told: None,
        }))
    }
}

struct Turns {
    input: SendableRecordBatchStream,
    /// What is left of a batch that is shown in slices.
    rest: Option<RecordBatch>,
    /// Rows of a slice.
    most: usize,
    /// When this turn began.
    began: Option<Instant>,
    /// When the last slice was shown.
    told: Option<Instant>,
}

impl Turns {
    /// The next slice of a batch, as long as one of a turn's length would be.
    fn slice(&mut self, batch: RecordBatch) -> RecordBatch {
        if self.most == usize::MAX {
            return batch;
        }
        if let Some(told) = self.told.map(|at| at.elapsed()) {
            if told > TURN {
                self.most = (self.most / 4).max(1);
            } else if told < TURN / 4 {
                self.most = (self.most * 2).min(MOST_ROWS);
            }
        }
        let rows = batch.num_rows();
        let first = batch.slice(0, self.most.min(rows));
        if rows > self.most {
            self.rest = Some(batch.slice(self.most, rows - self.most));
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
                self.told = Some(Instant::now());
                Poll::Ready(Some(Ok(slice)))
            }
            Poll::Pending => {
                self.began = None;
                self.told = None;
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
