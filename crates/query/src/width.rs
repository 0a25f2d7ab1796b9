//! Bounds the width of a statement: columns, windows and grouping sets. Depth and tables are bounded in `depth`.
//!
//! Operators work on batches of thousands of rows. Each column, each window and each grouping set takes memory and time for
//! every row, beside what the pool of memory counts.

use std::ops::ControlFlow;

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan, WindowFunctionDefinition};
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, GroupByWithModifier, Select, Visit as _, Visitor,
};

use crate::error::Error;
use crate::limits::{MAX_COLUMNS, MAX_GROUPING_SETS, MAX_WINDOWS};

/// Number of values in a batch: eight megabytes of numbers.
const BATCH_CELLS: usize = 1 << 20;

/// Rows of a batch of a few columns, DataFusion's own choice.
const BATCH_ROWS: usize = 8192;

/// Aggregates whose result is as large as all that they read. As windows they would return it for each row.
const COLLECTING: [&str; 2] = ["array_agg", "string_agg"];

/// Refuses a statement that is too wide, before it is planned.
pub(crate) fn check(statement: &Parsed) -> Result<(), Error> {
    let Parsed::Statement(statement) = statement else { return Ok(()) };
    match statement.visit(&mut Width::default()) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The width of a statement so far.
#[derive(Default)]
struct Width {
    windows: usize,
}

impl Visitor for Width {
    type Break = Error;

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Error> {
        within("columns", select.projection.len(), MAX_COLUMNS)?;
        within("grouping sets", grouping_sets(&select.group_by), MAX_GROUPING_SETS)
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<Error> {
        let is_window = matches!(expression, Expr::Function(Function { over: Some(_), .. }));
        self.windows += usize::from(is_window);
        within("windows", self.windows, MAX_WINDOWS)
    }
}

fn within(what: &'static str, count: usize, most: usize) -> ControlFlow<Error> {
    match count <= most {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(Error::TooWide { what, most }),
    }
}

/// Returns the number of grouping sets that a `GROUP BY` means.
fn grouping_sets(group_by: &GroupByExpr) -> usize {
    let cube = |of: usize| 2usize.saturating_pow(u32::try_from(of).unwrap_or(u32::MAX));
    let sets = |expression: &Expr| match expression {
        Expr::Cube(parts) => cube(parts.len()),
        Expr::Rollup(parts) => parts.len() + 1,
        Expr::GroupingSets(sets) => sets.len(),
        _ => 1,
    };
    let (expressions, modifiers) = match group_by {
        GroupByExpr::All(modifiers) => (&[][..], modifiers),
        GroupByExpr::Expressions(expressions, modifiers) => (&expressions[..], modifiers),
    };
    let modified = modifiers.iter().map(|modifier| match modifier {
        GroupByWithModifier::Cube => cube(expressions.len()),
        GroupByWithModifier::Rollup => expressions.len() + 1,
        GroupByWithModifier::Totals => 2,
        GroupByWithModifier::GroupingSets(expression) => sets(expression),
    });
    expressions.iter().map(sets).chain(modified).fold(1, usize::saturating_mul)
}

/// Refuses a plan with a step of too many columns, which `*` makes of few words, or with a window that collects.
pub(crate) fn check_plan(plan: &LogicalPlan) -> Result<(), Error> {
    let mut refused = None;
    let looked = each_step(plan, &mut |step| {
        if step.schema().fields().len() > MAX_COLUMNS {
            refused = Some(Error::TooWide { what: "columns", most: MAX_COLUMNS });
        }
        step.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Some(name) = collecting_window(part) {
                    let message = format!("`{name}` cannot be a window, which would repeat what it collects in each row");
                    refused = Some(Error::Query { message });
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(())
    });
    if let Err(e) = looked {
        return Err(Error::Query { message: e.strip_backtrace() });
    }
    refused.map_or(Ok(()), Err)
}

fn collecting_window(expression: &PlanExpr) -> Option<&str> {
    let PlanExpr::WindowFunction(window) = expression else { return None };
    match &window.fun {
        WindowFunctionDefinition::AggregateUDF(of) if COLLECTING.contains(&of.name()) => {
            Some(of.name())
        }
        _ => None,
    }
}

/// Returns the rows of a batch, so that the widest step of a plan has bounded batches.
pub(crate) fn batch_rows(plan: &LogicalPlan) -> usize {
    let mut widest = 1;
    // An error can only come from the closure.
    let _ = each_step(plan, &mut |step| {
        widest = step.schema().fields().len().max(widest);
        Ok(())
    });
    (BATCH_CELLS / widest).min(BATCH_ROWS)
}

fn each_step(
    plan: &LogicalPlan,
    look: &mut dyn FnMut(&LogicalPlan) -> PlanResult<()>,
) -> PlanResult<()> {
    plan.apply_with_subqueries(|step| {
        look(step)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::parse;

    #[test]
    fn columns_windows_and_grouping_sets_are_bounded() {
        let columns = |count: usize| vec!["1"; count].join(", ");
        let windows = |count: usize| vec!["avg(a) OVER (ORDER BY b)"; count].join(", ");
        for (sql, is_allowed) in [
            (format!("SELECT {}", columns(MAX_COLUMNS)), true),
            (format!("SELECT {}", columns(MAX_COLUMNS + 1)), false),
            (format!("SELECT {} FROM t", windows(MAX_WINDOWS)), true),
            (format!("SELECT {} FROM t", windows(MAX_WINDOWS + 1)), false),
            ("SELECT 1 FROM t GROUP BY CUBE (a, b, c, d, e, f, g)".to_owned(), true),
            ("SELECT 1 FROM t GROUP BY CUBE (a, b, c, d, e, f, g, h)".to_owned(), false),
            ("SELECT 1 FROM t GROUP BY CUBE (a, b, c, d), ROLLUP (a, b, c, d)".to_owned(), true),
            ("SELECT 1 FROM t GROUP BY CUBE (a, b, c, d), CUBE (a, b, c, d)".to_owned(), false),
        ] {
            let checked = check(&parse(&sql).expect("SQL"));
            assert_eq!(checked.is_ok(), is_allowed, "{sql:.80} {checked:?}");
        }
    }
}
