//! The operators in a physical plan, and the planner that makes them.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, Partitioning, PlanProperties,
};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;

use crate::operators::node::{Input, OperatorKind, OperatorNode};
use crate::operators::{asof, gapfill};

/// DataFusion's planner, with these operators beside its own.
pub(crate) struct Planner(DefaultPhysicalPlanner);

impl Planner {
    pub(crate) fn new() -> Self {
        Self(DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Operators)]))
    }
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Planner")
    }
}

// Neither method is an `async fn`: the compiler takes long to prove that a future which holds a logical plan is
// `Send`.
impl QueryPlanner for Planner {
    fn create_physical_plan<'planner, 'plan, 'session, 'all>(
        &'planner self,
        plan: &'plan LogicalPlan,
        session: &'session dyn Session,
    ) -> BoxFuture<'all, Result<Arc<dyn ExecutionPlan>>>
    where
        'planner: 'all,
        'plan: 'all,
        'session: 'all,
        Self: 'all,
    {
        self.0.create_physical_plan(plan, session)
    }
}

struct Operators;

impl ExtensionPlanner for Operators {
    fn plan_extension<'own, 'planner, 'node, 'refs, 'logical, 'inputs, 'session, 'context, 'all>(
        &'own self,
        planner: &'planner dyn PhysicalPlanner,
        node: &'node dyn UserDefinedLogicalNode,
        _: &'refs [&'logical LogicalPlan],
        inputs: &'inputs [Arc<dyn ExecutionPlan>],
        session: &'session dyn Session,
        context: &'context PhysicalPlanningContext,
    ) -> BoxFuture<'all, Result<Option<Arc<dyn ExecutionPlan>>>>
    where
        'own: 'all,
        'planner: 'all,
        'node: 'all,
        'logical: 'all,
        'refs: 'all,
        'inputs: 'all,
        'session: 'all,
        'context: 'all,
        Self: 'all,
    {
        let Some(node) = node.as_any().downcast_ref::<OperatorNode>() else {
            return Box::pin(ready(Ok(None)));
        };
        let plan = OperatorExec::plan(planner, node, inputs, session, context);
        Box::pin(ready(plan.map(|plan| Some(Arc::new(plan) as Arc<dyn ExecutionPlan>))))
    }
}

/// An operator that runs.
#[derive(Clone, Debug)]
struct OperatorExec {
    operator: OperatorKind,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    values: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    properties: Arc<PlanProperties>,
}

impl OperatorExec {
    fn plan(
        planner: &dyn PhysicalPlanner,
        node: &OperatorNode,
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Self> {
        let mut values = Vec::new();
        for (plan, exprs) in &node.inputs {
            let physical =
                |expr| planner.create_physical_expr(expr, plan.schema(), session, context);
            values.push(exprs.iter().map(physical).collect::<Result<Vec<_>>>()?);
        }
        let schema = Arc::new(node.schema.as_arrow().clone());
        Ok(Self::new(node.operator.clone(), inputs.to_vec(), values, schema))
    }

    fn new(
        operator: OperatorKind,
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
        Self { operator, inputs, values, properties: Arc::new(properties) }
    }

    async fn run(self, context: Arc<TaskContext>) -> Result<RecordBatch> {
        let memory = MemoryConsumer::new(self.name()).register(context.memory_pool());
        let mut inputs = Vec::new();
        for (plan, values) in self.inputs.iter().zip(&self.values) {
            let stream = plan.execute(0, context.clone())?;
            inputs.push(collect(stream, values, &memory).await?);
        }
        let schema = self.properties.eq_properties.schema().clone();
        match (&self.operator, inputs.as_slice()) {
            (OperatorKind::AsOf(condition), [left, right]) => {
                asof::join(*condition, left, right, schema)
            }
            (OperatorKind::GapFill(gaps), [input]) => gapfill::fill(gaps, input, schema, &memory),
            _ => internal_err!("{} has the wrong number of inputs", self.name()),
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
        // Twice: `concat_batches` copies the rows into one batch.
        memory.try_grow(2 * batch.get_array_memory_size())?;
        batches.push(batch);
    }
    let rows = concat_batches(&stream.schema(), &batches)?;
    // A bound of time is a constant: every row gets the same value.
    let value = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(&rows)?.into_array(rows.num_rows());
    let values = values.iter().map(value).collect::<Result<Vec<_>>>()?;
    Ok(Input { rows, values })
}

impl DisplayAs for OperatorExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for OperatorExec {
    fn name(&self) -> &str {
        match self.operator {
            OperatorKind::AsOf(_) => "AsOfJoinExec",
            OperatorKind::GapFill(_) => "GapFillExec",
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
            return exec_err!("{} has one partition, and {partition} was executed", self.name());
        }
        let schema = self.properties.eq_properties.schema().clone();
        let batch = futures_util::stream::once(self.clone().run(context));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batch)))
    }
}
