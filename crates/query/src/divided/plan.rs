//! Divides a plan between hubs, and checks what another hub sends.

use std::fmt;
use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::exec_err;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties as _, ReplaceChildrenOptions,
};
use datafusion_distributed::{DistributedLeafExec, NetworkCoalesceExec};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::codec::Pieced;
use super::exec::PiecesExec;
use crate::operators;

/// The steps of a plan between the pieces and the first step of the aggregation. They compute and have no effect.
const STEPS: [&str; 4] = ["FilterExec", "ProjectionExec", "RepartitionExec", "CooperativeExec"];

/// Returns true if a plan reads a table in pieces.
pub(crate) fn reads_pieces(plan: &LogicalPlan, pieced: &Pieced) -> bool {
    plan.exists(|plan| match plan {
        LogicalPlan::TableScan(scan) => Ok(pieced.contains_key(scan.table_name.table())),
        _ => Ok(false),
    })
    .unwrap_or(false)
}

/// Returns the scan of pieces below the first step of an aggregation, if nothing but [`STEPS`] is between.
fn scan_below(plan: &Arc<dyn ExecutionPlan>) -> Option<&PiecesExec> {
    let step = plan.downcast_ref::<AggregateExec>()?;
    if *step.mode() != AggregateMode::Partial {
        return None;
    }
    let mut input = step.input();
    while STEPS.contains(&input.name()) {
        input = input.children().pop()?;
    }
    input.downcast_ref()
}

/// Checks a plan of another hub: it is the first step of an aggregation of pieces.
///
/// # Errors
/// It is another one.
pub(super) fn check(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    match scan_below(plan) {
        Some(_) => Ok(()),
        None => exec_err!("a hub does only the first step of an aggregation of pieces for others"),
    }
}

/// Gives the pieces below `plan` to `hubs` hubs, and gathers what they compute.
fn divide(plan: Arc<dyn ExecutionPlan>, hubs: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let divided = plan.transform_down(|plan| {
        let scan = scan_below(&plan).filter(|scan| scan.can_be_shared());
        let Some(count) = scan.map(PiecesExec::count) else {
            return Ok(Transformed::no(plan));
        };
        let hubs = hubs.min(count);
        if hubs < 2 {
            return Ok(Transformed::no(plan));
        }
        let dealt = plan.transform_down(|step| {
            let Some(scan) = step.downcast_ref::<PiecesExec>() else {
                return Ok(Transformed::no(step));
            };
            let shares = scan.shares(hubs).into_iter().map(|share| Arc::new(share) as _);
            let leaf = DistributedLeafExec::try_new(step.clone(), shares)?;
            Ok(Transformed::new(Arc::new(leaf) as _, true, TreeNodeRecursion::Jump))
        })?;
        let gathered = NetworkCoalesceExec::try_new(dealt.data, hubs, 1)?;
        Ok(Transformed::new(Arc::new(gathered) as _, true, TreeNodeRecursion::Jump))
    })?;
    if !divided.transformed {
        return Ok(divided.data);
    }
    // The parents have more streams to read than they were planned with.
    let plan = divided.data.transform_up(|plan| {
        let children: Vec<_> = plan.children().into_iter().cloned().collect();
        if children.is_empty() || plan.is::<NetworkCoalesceExec>() {
            return Ok(Transformed::no(plan));
        }
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Transformed::yes(plan.replace_children(children, options)?))
    })?;
    Ok(match plan.data.output_partitioning().partition_count() {
        1 => plan.data,
        _ => Arc::new(CoalescePartitionsExec::new(plan.data)),
    })
}

/// The planner of a statement that hubs may answer together.
pub(super) struct DividingPlanner {
    planner: operators::Planner,
    hubs: usize,
}

impl DividingPlanner {
    pub(super) fn new(hubs: usize) -> Self {
        Self { planner: operators::Planner::new(), hubs }
    }
}

impl fmt::Debug for DividingPlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DividingPlanner").field("hubs", &self.hubs).finish_non_exhaustive()
    }
}

impl QueryPlanner for DividingPlanner {
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
        let planned = self.planner.create_physical_plan(plan, session);
        planned.map(|plan| divide(plan?, self.hubs)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Schema;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::object_store::ObjectStoreUrl;
    use datafusion::physical_plan::empty::EmptyExec;

    use super::super::worker;
    use super::*;

    #[test]
    fn a_plan_of_another_hub_that_does_not_aggregate_pieces_is_refused() {
        let plan: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
        let error = check(&plan).expect_err("refused").to_string();
        assert!(error.contains("only the first step of an aggregation of pieces"), "{error}");
        let coalesced = Arc::new(CoalescePartitionsExec::new(plan)) as Arc<dyn ExecutionPlan>;
        assert!(check(&coalesced).is_err());
    }

    #[test]
    fn a_worker_has_no_file_system() {
        let memory = Arc::new(GreedyMemoryPool::new(1 << 20));
        let runtime = worker::runtime(memory).expect("a runtime");
        let files = ObjectStoreUrl::local_filesystem();
        assert!(runtime.object_store(files).is_err());
    }
}
