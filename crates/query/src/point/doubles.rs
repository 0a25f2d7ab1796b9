//! Decides if a point read and the planner compute the same. A point read has doubles alone. The planner
//! has integers, too: for it `1 / 2` is 0, and `sum(1)` an integer.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Select, Value,
    visit_expressions,
};

use crate::ast::{column, is_named};

/// Aggregates that both have, with the same meaning.
const AGGREGATES: [&str; 7] = ["count", "sum", "avg", "min", "max", "quantile", "median"];

/// Returns true if every expression of a select over `latest` has the same value in doubles.
pub(crate) fn suffice(select: &Select) -> bool {
    let check = |expression: &Expr| match is_same(expression) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    visit_expressions(select, check).is_continue()
}

/// Returns true if both have this function as an aggregate.
pub(crate) fn is_aggregate(function: &Function) -> bool {
    AGGREGATES.iter().any(|name| is_named(function, name))
}

fn is_same(expression: &Expr) -> bool {
    match expression {
        Expr::BinaryOp { op, .. } if is_arithmetic(op) => is_double(expression),
        // In the evaluator `_` does not match a slash. Of the other columns only units have slashes.
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

/// Returns true if the planner makes a double of an expression. All numeric columns of `latest` are.
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
