//! The rule that replaces placeholders by operators.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::AnalyzerRule;

use crate::operators::{asof, gapfill};

/// Puts operators in the place of their placeholders.
#[derive(Debug)]
pub(crate) struct PlaceOperators;

impl AnalyzerRule for PlaceOperators {
    fn name(&self) -> &str {
        "place_operators"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let place = |plan: LogicalPlan| match plan {
            LogicalPlan::Join(join) => asof::planned(join),
            LogicalPlan::Projection(projection) => gapfill::planned(projection),
            other => Ok(Transformed::no(other)),
        };
        let placed = plan.transform_up_with_subqueries(place)?;
        if !placed.transformed {
            return Ok(placed.data);
        }
        // A gap makes columns nullable, which the nodes above must learn.
        let recompute = |plan: LogicalPlan| Ok(Transformed::yes(plan.recompute_schema()?));
        Ok(placed.data.transform_up_with_subqueries(recompute)?.data)
    }
}
