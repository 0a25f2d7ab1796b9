//! `IS [NOT] DISTINCT FROM` binds more tightly than `NOT`, `AND` and `OR`.
//!
//! The parser takes everything behind it for its right side: it reads `a IS DISTINCT FROM b AND c` as
//! `a IS DISTINCT FROM (b AND c)`. In the syntax tree, parentheses that somebody wrote are nodes of their own, so a
//! conjunction without them on the right side of such an operator, and then on the right side of a conjunction, is
//! always this mistake, and its first operand is moved to where it belongs.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, UnaryOperator, Value, VisitMut as _, VisitorMut,
};

/// Corrects a statement.
pub(crate) fn correct(statement: &mut Statement) {
    let _ = statement.visit(&mut Correction);
}

struct Correction;

impl VisitorMut for Correction {
    type Break = ();

    /// Corrects a node whose children are correct.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let mut moved = match expr {
            Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right)
                if is_joined(right) =>
            {
                std::mem::replace(&mut **right, nothing())
            }
            Expr::UnaryOp { op: UnaryOperator::Not, expr: right } if is_joined(right) => {
                std::mem::replace(&mut **right, nothing())
            }
            Expr::BinaryOp { op: BinaryOperator::And, right, .. } if is_joined(right) => {
                std::mem::replace(&mut **right, nothing())
            }
            Expr::BinaryOp { op: BinaryOperator::Or, right, .. }
                if is(right, &BinaryOperator::Or) =>
            {
                std::mem::replace(&mut **right, nothing())
            }
            _ => return ControlFlow::Continue(()),
        };
        let is_or = is(expr, &BinaryOperator::Or);
        let first = first_of(&mut moved, is_or);
        let operand = std::mem::replace(first, nothing());
        match expr {
            Expr::IsDistinctFrom(_, right)
            | Expr::IsNotDistinctFrom(_, right)
            | Expr::UnaryOp { expr: right, .. }
            | Expr::BinaryOp { right, .. } => **right = operand,
            _ => {}
        }
        *first = std::mem::replace(expr, nothing());
        *expr = moved;
        ControlFlow::Continue(())
    }
}

/// Returns the first operand of a conjunction or disjunction; with `of_or` the first one of the disjunction.
fn first_of(expr: &mut Expr, of_or: bool) -> &mut Expr {
    let is_inner = |expr: &Expr| match of_or {
        true => is(expr, &BinaryOperator::Or),
        false => is_joined(expr),
    };
    let mut at = expr;
    while is_inner(at) {
        at = match at {
            Expr::BinaryOp { left, .. } => &mut **left,
            other => return other,
        };
    }
    at
}

fn is(expr: &Expr, operator: &BinaryOperator) -> bool {
    matches!(expr, Expr::BinaryOp { op, .. } if op == operator)
}

fn is_joined(expr: &Expr) -> bool {
    is(expr, &BinaryOperator::And) || is(expr, &BinaryOperator::Or)
}

/// Stands in the place of an expression while that is moved.
fn nothing() -> Expr {
    Expr::Value(Value::Null.into())
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    /// Writes an expression with all its parentheses.
    fn whole(expr: &Expr) -> String {
        match expr {
            Expr::BinaryOp { left, op, right } => {
                format!("({} {op} {})", whole(left), whole(right))
            }
            Expr::UnaryOp { op, expr } => format!("({op} {})", whole(expr)),
            Expr::IsDistinctFrom(left, right) => format!("({} <> {})", whole(left), whole(right)),
            Expr::IsNotDistinctFrom(left, right) => {
                format!("({} == {})", whole(left), whole(right))
            }
            Expr::Nested(inner) => whole(inner),
            other => other.to_string(),
        }
    }

    fn corrected(condition: &str) -> String {
        let sql = format!("SELECT 1 WHERE {condition}");
        let mut statements = Parser::parse_sql(&GenericDialect {}, &sql).expect("SQL");
        correct(&mut statements[0]);
        let Statement::Query(query) = &statements[0] else { panic!("a query") };
        let select = query.body.as_select().expect("a select");
        whole(select.selection.as_ref().expect("a condition"))
    }

    #[test]
    fn operators_behind_it_are_not_its_own() {
        for (condition, expected) in [
            ("a IS DISTINCT FROM b", "(a <> b)"),
            ("a IS DISTINCT FROM b AND c", "((a <> b) AND c)"),
            ("a IS NOT DISTINCT FROM b OR c", "((a == b) OR c)"),
            ("a IS DISTINCT FROM b AND c OR d", "(((a <> b) AND c) OR d)"),
            ("a IS DISTINCT FROM b OR c AND d", "((a <> b) OR (c AND d))"),
            ("p AND a IS DISTINCT FROM b AND c", "((p AND (a <> b)) AND c)"),
            ("p AND a IS DISTINCT FROM b OR c", "((p AND (a <> b)) OR c)"),
            ("p OR a IS DISTINCT FROM b AND c", "(p OR ((a <> b) AND c))"),
            ("p OR a IS DISTINCT FROM b AND c OR d", "((p OR ((a <> b) AND c)) OR d)"),
            ("p OR a IS DISTINCT FROM b OR c", "((p OR (a <> b)) OR c)"),
            ("NOT a IS DISTINCT FROM b AND c", "((NOT (a <> b)) AND c)"),
            ("p AND NOT a IS DISTINCT FROM b OR c", "((p AND (NOT (a <> b))) OR c)"),
            (
                "a IS DISTINCT FROM b AND c IS DISTINCT FROM d AND e",
                "(((a <> b) AND (c <> d)) AND e)",
            ),
            (
                "a IS DISTINCT FROM b OR c IS NOT DISTINCT FROM d AND e",
                "((a <> b) OR ((c == d) AND e))",
            ),
            ("a IS DISTINCT FROM (b AND c) AND d", "((a <> (b AND c)) AND d)"),
            ("a AND (b OR c)", "(a AND (b OR c))"),
            ("a OR b AND c OR d", "((a OR (b AND c)) OR d)"),
            ("NOT (a AND b)", "(NOT (a AND b))"),
            ("a IS DISTINCT FROM b + 1 AND c", "((a <> (b + 1)) AND c)"),
        ] {
            assert_eq!(corrected(condition), expected, "{condition}");
        }
    }
}
