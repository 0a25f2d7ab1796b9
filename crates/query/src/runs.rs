//! Aggregation of rows that come in runs. Samples of one topic follow each other, and so do their times, so
//! the rows of one node and minute are adjacent.
//!
//! DataFusion looks up the group of each row. Here the group is looked up once a run, for all its rows. Only
//! the first of the two steps of aggregation is replaced, the one that reads the samples; its output is the
//! same.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::arrow::compute::{partition, take_arrays};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{
    Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion,
};
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateMode, aggregate_expressions, evaluate_many,
};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures_util::StreamExt as _;

use crate::tables::SampleColumn;

/// Number of groups after which they are passed on, so that rows that do not come in runs after all do not
/// fill the memory. The second step merges equal groups.
const MAX_GROUPS: usize = 65_536;

/// Replaces the first step by [`RunsExec`] where its input comes in runs.
#[derive(Debug)]
pub(crate) struct Runs;

impl PhysicalOptimizerRule for Runs {
    fn name(&self) -> &str {
        "runs"
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            Ok(match plan.downcast_ref::<AggregateExec>().filter(|step| is_of_runs(step)) {
                Some(step) => Transformed::yes(Arc::new(RunsExec(step.clone())) as _),
                None => Transformed::no(plan),
            })
        })
        .data()
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns true if a step is the first one, reads samples in the order in which they are stored, groups by
/// columns that come in runs, and has only functions that [`RunsExec`] supports.
fn is_of_runs(step: &AggregateExec) -> bool {
    let groups = step.group_expr();
    let mut input = step.input();
    // Neither a filter nor a repartition splits runs.
    while input.is::<FilterExec>() || input.is::<RepartitionExec>() {
        let Some(child) = input.children().pop() else { break };
        input = child;
    }
    let names = groups.expr().iter().flat_map(|(expr, _)| collect_columns(expr));
    *step.mode() == AggregateMode::Partial
        && input.is::<StreamingTableExec>()
        && groups.is_single()
        && !groups.is_empty()
        && names.into_iter().all(|column| SampleColumn::comes_in_runs(column.name()))
        && step.limit_options().is_none()
        && step.filter_expr().iter().all(Option::is_none)
        && step.aggr_expr().iter().all(|function| function.groups_accumulator_supported())
}

/// Computes the same as the [`AggregateExec`] in it.
#[derive(Debug)]
struct RunsExec(AggregateExec);

impl DisplayAs for RunsExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Runs")?;
        self.0.fmt_as(kind, f)
    }
}

impl ExecutionPlan for RunsExec {
    fn name(&self) -> &str {
        "RunsAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.0.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.0.apply_expressions(f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let step = Arc::new(self.0.clone()).replace_children(children, options)?;
        Ok(match step.downcast_ref::<AggregateExec>() {
            Some(step) => Arc::new(Self(step.clone())),
            None => step,
        })
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let input = self.0.input().execute(partition, context.clone())?;
        let grouping = Grouping::new(&self.0, input, &context)?;
        let next = |mut grouping: Grouping| async move {
            Ok(grouping.next().await?.map(|batch| (batch, grouping)))
        };
        let stream = futures_util::stream::try_unfold(grouping, next);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }
}

/// The aggregation of one stream of rows.
struct Grouping {
    input: SendableRecordBatchStream,
    keys: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    arguments: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    groups: Box<dyn GroupValues>,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    memory: MemoryReservation,
    schema: SchemaRef,
    /// Group of each run, and of each row.
    of_runs: Vec<usize>,
    of_rows: Vec<usize>,
    is_at_end: bool,
    /// Groups that are ready to be passed on, in batches.
    ready: Option<RecordBatch>,
    batch_rows: usize,
}

impl Grouping {
    fn new(
        step: &AggregateExec,
        input: SendableRecordBatchStream,
        context: &TaskContext,
    ) -> Result<Self> {
        let by = step.group_expr();
        let accumulators = step.aggr_expr().iter().map(|one| one.create_groups_accumulator());
        Ok(Self {
            input,
            keys: vec![by.expr().iter().map(|(expr, _)| expr.clone()).collect()],
            arguments: aggregate_expressions(step.aggr_expr(), step.mode(), 0)?,
            groups: new_group_values(by.group_schema(&step.input_schema())?, &GroupOrdering::None)?,
            accumulators: accumulators.collect::<Result<_>>()?,
            memory: MemoryConsumer::new("groups of runs").register(context.memory_pool()),
            schema: step.schema(),
            of_runs: Vec::new(),
            of_rows: Vec::new(),
            is_at_end: false,
            ready: None,
            batch_rows: context.session_config().batch_size(),
        })
    }

    /// Returns the next batch of groups.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(groups) = self.ready.take() {
                let rows = groups.num_rows().min(self.batch_rows);
                let rest = groups.num_rows() - rows;
                self.ready = (rest > 0).then(|| groups.slice(rows, rest));
                return Ok(Some(groups.slice(0, rows)));
            }
            if self.is_at_end {
                return Ok(None);
            }
            match self.input.next().await {
                Some(batch) => self.take(&batch?)?,
                None => self.is_at_end = true,
            }
            // Without memory for more groups, the groups so far are passed on.
            let is_full =
                self.groups.len() >= MAX_GROUPS || self.memory.try_resize(self.size()).is_err();
            if self.is_at_end || is_full {
                self.ready = self.emit()?;
            }
        }
    }

    fn size(&self) -> usize {
        self.groups.size() + self.accumulators.iter().map(|one| one.size()).sum::<usize>()
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let keys: Vec<ArrayRef> = evaluate_many(&self.keys, batch)?.into_iter().flatten().collect();
        let runs = partition(&keys)?.ranges();
        let firsts = UInt64Array::from_iter_values(runs.iter().map(|run| run.start as u64));
        self.groups.intern(&take_arrays(&keys, &firsts, None)?, &mut self.of_runs)?;
        self.of_rows.clear();
        for (run, group) in runs.iter().zip(&self.of_runs) {
            self.of_rows.resize(run.end, *group);
        }
        let groups = self.groups.len();
        let arguments = evaluate_many(&self.arguments, batch)?;
        for (accumulator, values) in self.accumulators.iter_mut().zip(&arguments) {
            accumulator.update_batch(values, &self.of_rows, None, groups)?;
        }
        Ok(())
    }

    fn emit(&mut self) -> Result<Option<RecordBatch>> {
        if self.groups.is_empty() {
            return Ok(None);
        }
        let mut columns = self.groups.emit(EmitTo::All)?;
        for accumulator in &mut self.accumulators {
            columns.extend(accumulator.state(EmitTo::All)?);
        }
        self.groups.clear_shrink(0);
        self.memory.try_resize(self.size())?;
        Ok(Some(RecordBatch::try_new(self.schema.clone(), columns)?))
    }
}
