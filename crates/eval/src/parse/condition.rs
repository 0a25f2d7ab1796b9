//! Conditions: predicates and windows.

use sqlparser::ast::{
    BinaryOperator, Expr, Function as Call, FunctionArguments, Interval, UnaryOperator, Value,
};

use crate::error::Error;
use crate::expression::{Comparison, Condition};
use crate::limits::MAX_DEPTH;
use crate::parse::compiler::{Compiler, Scope};
use crate::parse::literal;
use crate::parse::shape::HUB;
use crate::program::Window;

impl Compiler<'_> {
    /// Compiles the predicate of `WHERE`, and the window in it.
    pub(super) fn selection(
        &mut self,
        selection: &Expr,
    ) -> Result<(Condition, Option<Window>), Error> {
        let mut window = None;
        let mut parts = Vec::new();
        for part in chain(selection, &BinaryOperator::And) {
            self.look_at(part);
            match self.window(part)? {
                Some(_) if window.is_some() => {
                    return Err(self.meaningless(
                        "a second window",
                        "keep only one `time > now() - INTERVAL '...'`",
                    ));
                }
                Some(found) => window = Some(found),
                None => parts.push(self.condition(part, Scope::Row, 0)?),
            }
        }
        self.look_at(selection);
        Ok((Condition::All(parts), window))
    }

    /// Compiles `time > now() - INTERVAL '60 s'`, with the sides in either order; `None` for anything else.
    fn window(&self, part: &Expr) -> Result<Option<Window>, Error> {
        let Expr::BinaryOp { left, op, right } = unnested(part) else { return Ok(None) };
        let is_time = |side: &Expr| {
            let name = self.column_name(unnested(side));
            name.is_some_and(|name| ["time", "timestamp"].contains(&name.as_str()))
        };
        let (bound, closed) = match op {
            BinaryOperator::Gt if is_time(left) => (right, false),
            BinaryOperator::GtEq if is_time(left) => (right, true),
            BinaryOperator::Lt if is_time(right) => (left, false),
            BinaryOperator::LtEq if is_time(right) => (left, true),
            _ => return Ok(None),
        };
        if !self.samples {
            return Err(self.refused(
                "`time` in `latest`",
                "`age` is the time since the last poll of a value: `age < INTERVAL '30 s'`",
            ));
        }
        match before_now(bound).map(literal::interval) {
            Some(Some(length)) => Ok(Some(Window { length, closed })),
            Some(None) => Err(self.bad_interval()),
            None => Err(self.refused(
                "a window that does not end now",
                "write `time > now() - INTERVAL '60 s'`; the hub has the history",
            )),
        }
    }

    /// Compiles a condition.
    pub(super) fn condition(
        &mut self,
        expression: &Expr,
        scope: Scope,
        depth: usize,
    ) -> Result<Condition, Error> {
        self.look_at(expression);
        if depth >= MAX_DEPTH {
            return Err(self.too_many("nested expressions", MAX_DEPTH));
        }
        let below = depth + 1;
        match expression {
            Expr::Nested(inner) => self.condition(inner, scope, below),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => {
                Ok(Condition::Not(Box::new(self.condition(expr, scope, below)?)))
            }
            Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => {
                let parts = chain(expression, op).into_iter();
                let parts = parts.map(|part| self.condition(part, scope, below));
                let parts = parts.collect::<Result<_, _>>()?;
                Ok(match op {
                    BinaryOperator::And => Condition::All(parts),
                    _ => Condition::Any(parts),
                })
            }
            Expr::BinaryOp { left, op, right } => match comparison(op) {
                Some(comparison) => self.compare(comparison, left, right, scope, below),
                None => Err(self.not_a_condition()),
            },
            Expr::Value(value) => match &value.value {
                Value::Boolean(truth) => Ok(Condition::Always(*truth)),
                _ => Err(self.not_a_condition()),
            },
            Expr::IsNull(inner) => Ok(Condition::IsNull(self.expression(inner, scope, below)?)),
            Expr::IsNotNull(inner) => {
                let inner = Condition::IsNull(self.expression(inner, scope, below)?);
                Ok(Condition::Not(Box::new(inner)))
            }
            Expr::Between { expr, negated, low, high } => {
                let value = self.expression(expr, scope, below)?;
                let low = self.expression(low, scope, below)?;
                let high = self.expression(high, scope, below)?;
                let between = Condition::All(vec![
                    Condition::Compare(Comparison::GreaterOrEqual, value.clone(), low),
                    Condition::Compare(Comparison::LessOrEqual, value, high),
                ]);
                Ok(negate(*negated, between))
            }
            Expr::InList { expr, list, negated } => {
                Ok(negate(*negated, self.in_list(expr, list, scope, below)?))
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                let like = self.like(expr, pattern, escape_char.as_ref(), scope)?;
                Ok(negate(*negated, like))
            }
            Expr::ILike { .. } => {
                Err(self.refused("`ILIKE`", "topics are lower-case: `LIKE` is enough"))
            }
            Expr::InSubquery { .. }
            | Expr::Like { .. }
            | Expr::AnyOp { .. }
            | Expr::AllOp { .. } => Err(self.refused("a predicate of this kind", HUB)),
            _ => Err(self.not_a_condition()),
        }
    }

    fn compare(
        &mut self,
        comparison: Comparison,
        left: &Expr,
        right: &Expr,
        scope: Scope,
        depth: usize,
    ) -> Result<Condition, Error> {
        for (column, text) in [(left, right), (right, left)] {
            if let Some(column) = self.text_column(column) {
                return self.compare_text(column, comparison, text, scope);
            }
        }
        let left = self.expression(left, scope, depth)?;
        Ok(Condition::Compare(comparison, left, self.expression(right, scope, depth)?))
    }

    fn in_list(
        &mut self,
        expression: &Expr,
        list: &[Expr],
        scope: Scope,
        depth: usize,
    ) -> Result<Condition, Error> {
        if let Some(column) = self.text_column(expression) {
            return self.text_in(column, list, scope);
        }
        let value = self.expression(expression, scope, depth)?;
        let each = list.iter().map(|item| {
            let item = self.expression(item, scope, depth)?;
            Ok(Condition::Compare(Comparison::Equal, value.clone(), item))
        });
        Ok(Condition::Any(each.collect::<Result<_, Error>>()?))
    }

    fn not_a_condition(&self) -> Error {
        self.meaningless(
            "not a condition: it is neither true nor false",
            "compare: `value > 0`, `topic LIKE '%/available_bytes'`",
        )
    }
}

pub(super) fn negate(negated: bool, condition: Condition) -> Condition {
    if negated { Condition::Not(Box::new(condition)) } else { condition }
}

fn comparison(operator: &BinaryOperator) -> Option<Comparison> {
    Some(match operator {
        BinaryOperator::Eq => Comparison::Equal,
        BinaryOperator::NotEq => Comparison::NotEqual,
        BinaryOperator::Lt => Comparison::Less,
        BinaryOperator::LtEq => Comparison::LessOrEqual,
        BinaryOperator::Gt => Comparison::Greater,
        BinaryOperator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// Returns the parts of `a AND b AND c`, from left to right. Iterates, because the tree is as deep as the
/// chain is long.
fn chain<'e>(expression: &'e Expr, operator: &BinaryOperator) -> Vec<&'e Expr> {
    let mut parts = Vec::new();
    let mut rest = expression;
    while let Expr::BinaryOp { left, op, right } = rest
        && op == operator
    {
        parts.push(&**right);
        rest = left;
    }
    parts.push(rest);
    parts.reverse();
    parts
}

pub(super) fn unnested(mut expression: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expression {
        expression = inner;
    }
    expression
}

/// Returns the interval of `now() - INTERVAL '60 s'`.
fn before_now(bound: &Expr) -> Option<&Interval> {
    let Expr::BinaryOp { left, op: BinaryOperator::Minus, right } = unnested(bound) else {
        return None;
    };
    let Expr::Function(now) = unnested(left) else { return None };
    match unnested(right) {
        Expr::Interval(interval) if is_now(now) => Some(interval),
        _ => None,
    }
}

fn is_now(call: &Call) -> bool {
    let nothing = match &call.args {
        FunctionArguments::None => true,
        FunctionArguments::List(list) => list.args.is_empty() && list.clauses.is_empty(),
        FunctionArguments::Subquery(_) => false,
    };
    let name = call.name.to_string().to_lowercase();
    nothing && ["now", "current_timestamp"].contains(&name.as_str())
}
