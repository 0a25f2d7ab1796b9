//! The operators in a physical plan, and the planner that makes them.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
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

use crate::operators::node::{Input, OperatorKind, OperatorNode};
use crate::operators::{asof, gapfill};

/// DataFusion's planner, with these operators beside its own.
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
        let Some(node) = node.as_any().downcast_ref::<OperatorNode>() else { return Ok(None) };
        let mut values = Vec::new();
        for (plan, exprs) in &node.inputs {
            let physical =
                |expr| planner.create_physical_expr(expr, plan.schema(), session, context);
            values.push(exprs.iter().map(physical).collect::<Result<Vec<_>>>()?);
        }
        let schema = Arc::new(node.schema.as_arrow().clone());
        let operator = node.operator.clone();
        Ok(Some(Arc::new(OperatorExec::new(operator, inputs.to_vec(), values, schema))))
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
