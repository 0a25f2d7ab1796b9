//! Operators that need all of their input before they have a row: the `ASOF` join and gap filling.
//!
//! SQL with them becomes marks (`functions::marks`) in standard SQL. Once types are settled, a rule
//! finds the marks and puts a [`Whole`] in their place, which runs as a [`WholeExec`]. A mark that is
//! left where it means nothing says so when it is executed.

mod asof;
mod gapfill;

use std::cmp::Ordering;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, exec_err, internal_err};
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, Partitioning, PlanProperties,
};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use futures_util::StreamExt as _;

/// What is made of whole inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum What {
    AsOf(asof::AsOf),
    GapFill(gapfill::GapFill),
}

/// In a logical plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Whole {
    what: What,
    /// Of each input what has to be computed of its rows.
    inputs: Vec<(LogicalPlan, Vec<Expr>)>,
    schema: DFSchemaRef,
}

impl Whole {
    fn plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }
}

impl PartialOrd for Whole {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for Whole {
    fn name(&self) -> &str {
        match self.what {
            What::AsOf(_) => "AsOfJoin",
            What::GapFill(_) => "GapFill",
        }
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.inputs.iter().map(|(plan, _)| plan).collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.inputs.iter().flat_map(|(_, exprs)| exprs.clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exprs: Vec<String> =
            self.inputs.iter().flat_map(|(_, exprs)| exprs).map(ToString::to_string).collect();
        write!(f, "{}: {}", UserDefinedLogicalNodeCore::name(self), exprs.join(", "))
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, plans: Vec<LogicalPlan>) -> Result<Self> {
        let mut exprs = exprs.into_iter();
        let known = plans.into_iter().zip(&self.inputs);
        let inputs = known.map(|(plan, (_, old))| (plan, exprs.by_ref().take(old.len()).collect()));
        Ok(Self { inputs: inputs.collect(), ..self.clone() })
    }
}

/// Puts the operators where their marks are.
#[derive(Debug)]
pub(crate) struct Marks;

impl AnalyzerRule for Marks {
    fn name(&self) -> &str {
        "marks"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let operators = |plan: LogicalPlan| match plan {
            LogicalPlan::Join(join) => asof::planned(join),
            LogicalPlan::Projection(projection) => gapfill::planned(projection),
            other => Ok(Transformed::no(other)),
        };
        let found = plan.transform_up_with_subqueries(operators)?;
        if !found.transformed {
            return Ok(found.data);
        }
        // Where there are gaps there is `NULL`, which those above have to know.
        let known = |plan: LogicalPlan| Ok(Transformed::yes(plan.recompute_schema()?));
        Ok(found.data.transform_up_with_subqueries(known)?.data)
    }
}

/// DataFusion's planner, which knows these operators beside its own.
#[derive(Debug)]
pub(crate) struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Operators)]);
        planner.create_physical_plan(plan, session).await
    }
}

struct Operators;

#[async_trait]
impl ExtensionPlanner for Operators {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(whole) = node.as_any().downcast_ref::<Whole>() else { return Ok(None) };
        let mut values = Vec::new();
        for (plan, exprs) in &whole.inputs {
            let physical =
                |expr| planner.create_physical_expr(expr, plan.schema(), session, context);
            values.push(exprs.iter().map(physical).collect::<Result<Vec<_>>>()?);
        }
        let schema = Arc::new(whole.schema.as_arrow().clone());
        Ok(Some(Arc::new(WholeExec::new(whole.what.clone(), inputs.to_vec(), values, schema))))
    }
}

/// All rows of one input, and what was computed of them.
struct Input {
    rows: RecordBatch,
    values: Vec<ArrayRef>,
}

/// At work.
#[derive(Clone, Debug)]
struct WholeExec {
    what: What,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    values: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    properties: Arc<PlanProperties>,
}

impl WholeExec {
    fn new(
        what: What,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        values: Vec<Vec<Arc<dyn PhysicalExpr>>>,
        schema: SchemaRef,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self { what, inputs, values, properties: Arc::new(properties) }
    }

    async fn made(self, context: Arc<TaskContext>) -> Result<RecordBatch> {
        let memory = MemoryConsumer::new("whole").register(context.memory_pool());
        let mut inputs = Vec::new();
        for (plan, values) in self.inputs.iter().zip(&self.values) {
            let stream = plan.execute(0, context.clone())?;
            inputs.push(collect(stream, values, &memory).await?);
        }
        let schema = self.properties.eq_properties.schema().clone();
        match (&self.what, inputs.as_slice()) {
            (What::AsOf(asof), [left, right]) => asof.join(left, right, schema),
            (What::GapFill(gaps), [input]) => gaps.fill(input, schema, &memory),
            _ => internal_err!("an operator has other inputs than it needs"),
        }
    }
}

async fn collect(
    mut stream: SendableRecordBatchStream,
    values: &[Arc<dyn PhysicalExpr>],
    memory: &MemoryReservation,
) -> Result<Input> {
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        // Twice: the rows once more when they are one batch.
        memory.try_grow(2 * batch.get_array_memory_size())?;
        batches.push(batch);
    }
    let rows = concat_batches(&stream.schema(), &batches)?;
    // Bounds of time are the same for all rows, and there may be no row to have them.
    let value = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(&rows)?.into_array(rows.num_rows());
    let values = values.iter().map(value).collect::<Result<Vec<_>>>()?;
    Ok(Input { rows, values })
}

impl DisplayAs for WholeExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for WholeExec {
    fn name(&self) -> &str {
        match self.what {
            What::AsOf(_) => "AsOfJoinExec",
            What::GapFill(_) => "GapFillExec",
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition; self.inputs.len()]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for expr in self.values.iter().flatten() {
            if visit(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { inputs, ..(*self).clone() }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return exec_err!("{} has one partition", self.name());
        }
        let schema = self.properties.eq_properties.schema().clone();
        let made = futures_util::stream::once(self.clone().made(context));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, made)))
    }
}
