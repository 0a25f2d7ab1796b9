//! The rule that keeps NULL in `IN` lists what it is.
//!
//! DataFusion's optimiser merges two lists of one operand (`x IN (1, 2) AND x NOT IN (2)`), and forgets two cases: a list
//! that has NULL, and an operand that is NULL. This rule writes both cases out, so that merging is right:
//!
//! - `x IN (a, NULL)` is `x IN (a) OR NULL`, and `x NOT IN (a, NULL)` is `x NOT IN (a) AND NULL`.
//! - Where an operand that may be NULL has several lists in one expression, each gets a guard that is NULL if the operand
//!   is: `x IN (a) OR (x IS NULL AND NULL)`, and `x NOT IN (a) AND (x IS NOT NULL OR NULL)`.

use std::collections::HashMap;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

/// Writes out what NULL means in lists.
#[derive(Debug)]
pub(crate) struct Lists;

impl AnalyzerRule for Lists {
    fn name(&self) -> &str {
        "lists"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(in_plan)?.data)
    }
}

fn in_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let (schema, names) = (merge_schema(&plan.inputs()), NamePreserver::new(&plan));
    plan.map_expressions(|expression| {
        // The plan above knows the parts of a grouping set by their names, which they would lose.
        if matches!(expression, Expr::GroupingSet(_)) {
            return Ok(Transformed::no(expression));
        }
        let several = operands_of_several_lists(&expression, &schema)?;
        let name = names.save(&expression);
        let changed = expression.transform_up(|part| match part {
            Expr::InList(list) => Ok(written_out(list, &several)),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(changed.update_data(|expression| name.restore(expression)))
    })
}

/// Returns the operands that may be NULL and have several lists in an expression.
fn operands_of_several_lists(expression: &Expr, schema: &DFSchema) -> Result<Vec<Expr>> {
    let mut lists: HashMap<&Expr, usize> = HashMap::new();
    expression.apply(|part| {
        if let Expr::InList(list) = part {
            *lists.entry(&list.expr).or_default() += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let several = lists.into_iter().filter(|(_, count)| *count > 1).map(|(operand, _)| operand);
    Ok(several.filter(|operand| operand.nullable(schema).unwrap_or(true)).cloned().collect())
}

fn written_out(list: InList, several: &[Expr]) -> Transformed<Expr> {
    let InList { expr, list, negated } = list;
    let length = list.len();
    let known: Vec<Expr> = list.into_iter().filter(|item| !is_null(item)).collect();
    let (has_null, needs_guard) = (known.len() < length, several.contains(&expr));
    if !has_null && !needs_guard {
        return Transformed::no(Expr::InList(InList { expr, list: known, negated }));
    }
    let null = || Expr::Literal(ScalarValue::Boolean(None), None);
    let operand = (*expr).clone();
    let mut result = Expr::InList(InList { expr, list: known, negated });
    if needs_guard {
        result = match negated {
            true => result.and(operand.is_not_null().or(null())),
            false => result.or(operand.is_null().and(null())),
        };
    }
    if has_null {
        result = if negated { result.and(null()) } else { result.or(null()) };
    }
    Transformed::yes(result)
}

fn is_null(expression: &Expr) -> bool {
    match expression {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(cast) => is_null(&cast.expr),
        _ => false,
    }
}
