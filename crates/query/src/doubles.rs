//! Whether the planner computes what the point reader does. That one knows doubles alone, the planner has
//! whole numbers too: `1 / 2` is 0 for it, and `sum(1)` a whole number.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Select, Value,
    visit_expressions,
};

use crate::ast::{column, is_named};

/// Aggregates that both have, and have alike.
const AGGREGATES: [&str; 7] = ["count", "sum", "avg", "min", "max", "quantile", "median"];

/// Whether all that a select over `latest` computes comes to the same in doubles.
pub(crate) fn suffice(select: &Select) -> bool {
    let alike = |expression: &Expr| match is_alike(expression) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    visit_expressions(select, alike).is_continue()
}

/// Whether a function brings rows together, in a way that both know.
pub(crate) fn is_aggregate(function: &Function) -> bool {
    AGGREGATES.iter().any(|name| is_named(function, name))
}

fn is_alike(expression: &Expr) -> bool {
    match expression {
        Expr::BinaryOp { op, .. } if is_arithmetic(op) => is_double(expression),
        // For the evaluator `_` is no slash, which of all other columns only topics have.
        Expr::Like { expr, .. } => {
            column(expr).is_none_or(|column| !column.value.eq_ignore_ascii_case("unit"))
        }
        Expr::Function(function) if is_aggregate(function) && !is_named(function, "count") => {
            arguments(function).first().is_some_and(|of| is_double(of))
        }
        _ => true,
    }
}

fn is_arithmetic(operator: &BinaryOperator) -> bool {
    use BinaryOperator::{Divide, Minus, Modulo, Multiply, Plus};
    matches!(operator, Plus | Minus | Multiply | Divide | Modulo)
}

/// Whether the planner takes it for a double. All columns of `latest` that are numbers are.
fn is_double(expression: &Expr) -> bool {
    match expression {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => true,
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => text.contains(['.', 'e', 'E']),
            _ => false,
        },
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_double(inner),
        Expr::BinaryOp { left, right, .. } => is_double(left) || is_double(right),
        Expr::Function(function) => arguments(function).first().is_some_and(|of| is_double(of)),
        Expr::Case { conditions, else_result, .. } => {
            let results = conditions.iter().map(|when| &when.result);
            results.chain(else_result.as_deref()).any(is_double)
        }
        _ => false,
    }
}

fn arguments(function: &Function) -> Vec<&Expr> {
    let FunctionArguments::List(list) = &function.args else { return Vec::new() };
    let plain = |argument| match argument {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Some(expr),
        _ => None,
    };
    list.args.iter().filter_map(plain).collect()
}
