//! The rule that makes doubles behave as numbers.
//!
//! - **There is one zero.** IEEE 754 has two, which are equal and differ in their bits. Arrow compares and groups by bits,
//!   so `-0.0` would be another group than `0.0`, and less. Samples enter plans with one zero (`tables`), and what
//!   computes a double adds zero to it, which turns `-0.0` into `0.0` and changes nothing else.
//! - **Sliding sums are exact.** DataFusion takes a number that leaves the window away from a rounded sum, so a small one
//!   beside a big one is lost for ever. `functions::sliding` takes it away from a sum without rounding.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable as _, LogicalPlan, Operator, WindowFunctionDefinition, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::sliding;

/// Makes doubles behave as numbers.
#[derive(Debug)]
pub(crate) struct Numbers;

impl AnalyzerRule for Numbers {
    fn name(&self) -> &str {
        "numbers"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(in_plan)?.data)
    }
}

fn in_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let (schema, names) = (merge_schema(&plan.inputs()), NamePreserver::new(&plan));
    let changed = plan.map_expressions(|expression| {
        // The plan above knows the parts of a grouping set by their names, which they would lose.
        if matches!(expression, Expr::GroupingSet(_)) {
            return Ok(Transformed::no(expression));
        }
        let name = names.save(&expression);
        let changed = expression.transform_up(|expression| in_expression(expression, &schema))?;
        Ok(changed.update_data(|expression| name.restore(expression)))
    })?;
    changed.map_data(LogicalPlan::recompute_schema)
}

fn in_expression(expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expression {
        Expr::Literal(ScalarValue::Float64(Some(number)), metadata) if is_negative_zero(number) => {
            Ok(Transformed::yes(Expr::Literal(ScalarValue::Float64(Some(0.0)), metadata)))
        }
        Expr::WindowFunction(function) => Ok(exact(*function, schema)),
        // No integer is a negative zero.
        Expr::Cast(ref cast) if cast.expr.get_type(schema).is_ok_and(|from| from.is_integer()) => {
            Ok(Transformed::no(expression))
        }
        Expr::Negative(_) | Expr::Cast(_) | Expr::TryCast(_) | Expr::ScalarFunction(_) => {
            Ok(with_one_zero(expression, schema))
        }
        Expr::BinaryExpr(BinaryExpr {
            op: Operator::Multiply | Operator::Divide | Operator::Modulo,
            ..
        }) => Ok(with_one_zero(expression, schema)),
        other => Ok(Transformed::no(other)),
    }
}

fn is_negative_zero(number: f64) -> bool {
    number == 0.0 && number.is_sign_negative()
}

/// Adds zero to an expression that may compute `-0.0`.
fn with_one_zero(expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expression.get_type(schema) {
        Ok(DataType::Float64) => Transformed::yes(expression + lit(0.0)),
        _ => Transformed::no(expression),
    }
}

/// Replaces the sum or the average of doubles in a window.
fn exact(mut function: WindowFunction, schema: &DFSchema) -> Transformed<Expr> {
    let WindowFunctionDefinition::AggregateUDF(aggregate) = &function.fun else {
        return Transformed::no(Expr::from(function));
    };
    let is_double = matches!(
        function.params.args.first().map(|argument| argument.get_type(schema)),
        Some(Ok(DataType::Float64))
    );
    let replacement = match aggregate.name() {
        "sum" if is_double && !function.params.distinct => sliding::sum(),
        "avg" if is_double && !function.params.distinct => sliding::average(),
        _ => return Transformed::no(Expr::from(function)),
    };
    function.fun = WindowFunctionDefinition::AggregateUDF(Arc::new(replacement));
    Transformed::yes(Expr::from(function))
}
