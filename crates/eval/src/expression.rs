//! Compiled expressions: names are resolved, and computing them allocates nothing.
//!
//! An expression has a value or a [`Fault`]; `NULL` is one of the faults. A condition is true, false
//! or unknown, as in SQL: it is unknown if an expression in it has no value.

use skopos_model::Unit;

/// A number, or the computation of a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    /// A literal. An interval has a unit; any other literal takes the unit of the operand that it is added
    /// to or compared with.
    Number(f64, Option<Unit>),
    /// A value of the row or of the result.
    Leaf(Leaf),
    Negate(Box<Expression>),
    Binary(Operator, Box<Expression>, Box<Expression>),
    Call(Scalar, Vec<Expression>),
    /// The expression of the first true condition; otherwise the last expression.
    Case(Vec<(Condition, Expression)>, Option<Box<Expression>>),
    Null,
}

/// The input of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// The value of the row.
    Value,
    /// The change of the value per second since the previous poll.
    Rate,
    /// The time since the last poll of its source, in seconds.
    Age,
    /// The exponential mean of the row, by its index in `Program::emas`.
    Ema(usize),
    /// An aggregate, by its index in `Program::aggregates`.
    Aggregate(usize),
}

/// Arithmetic on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

/// Functions of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Abs,
    Round,
    Floor,
    Ceil,
    Least,
    Greatest,
    Coalesce,
    NullIf,
}

impl Scalar {
    pub(crate) const ALL: [Self; 8] = [
        Self::Abs,
        Self::Round,
        Self::Floor,
        Self::Ceil,
        Self::Least,
        Self::Greatest,
        Self::Coalesce,
        Self::NullIf,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Abs => "abs",
            Self::Round => "round",
            Self::Floor => "floor",
            Self::Ceil => "ceil",
            Self::Least => "least",
            Self::Greatest => "greatest",
            Self::Coalesce => "coalesce",
            Self::NullIf => "nullif",
        }
    }
}

/// A test of a row or of a result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    Always(bool),
    /// A test of the row's texts, by its index in `Program::texts`.
    Text(usize),
    Compare(Comparison, Expression, Expression),
    IsNull(Expression),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
}

/// A comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    #[inline]
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
        }
    }
}

/// The reason for which an expression has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The value is `NULL`.
    Null,
    DivideByZero,
    /// The result is beyond the largest double.
    TooLarge,
    /// A row of the aggregate has a fault.
    Row,
    /// There are several rows where one is needed.
    Several,
    /// The aggregate with this index has a fault.
    Aggregate(usize),
}

/// The source of the values of leaves.
pub(crate) trait Leaves {
    /// Returns the value of a leaf.
    fn leaf(&self, leaf: Leaf) -> Result<f64, Fault>;

    /// Returns the outcome of a test of texts; `None` if it is unknown.
    fn text(&self, test: usize) -> Option<bool>;
}

impl Expression {
    /// Computes the value, always finite.
    pub(crate) fn value(&self, leaves: &impl Leaves) -> Result<f64, Fault> {
        match self {
            Self::Number(number, _) => Ok(*number),
            Self::Leaf(leaf) => leaves.leaf(*leaf),
            Self::Negate(inner) => inner.value(leaves).map(|number| -number),
            Self::Binary(operator, left, right) => {
                binary(*operator, left.value(leaves)?, right.value(leaves)?)
            }
            Self::Call(function, arguments) => call(*function, arguments, leaves),
            Self::Case(arms, otherwise) => {
                let taken = arms.iter().find(|(when, _)| when.truth(leaves) == Some(true));
                match (taken, otherwise) {
                    (Some((_, then)), _) => then.value(leaves),
                    (None, Some(otherwise)) => otherwise.value(leaves),
                    (None, None) => Err(Fault::Null),
                }
            }
            Self::Null => Err(Fault::Null),
        }
    }

    /// Calls `visit` with each leaf.
    pub(crate) fn leaves(&self, visit: &mut impl FnMut(Leaf)) {
        match self {
            Self::Number(..) | Self::Null => {}
            Self::Leaf(leaf) => visit(*leaf),
            Self::Negate(inner) => inner.leaves(visit),
            Self::Binary(_, left, right) => {
                left.leaves(visit);
                right.leaves(visit);
            }
            Self::Call(_, arguments) => arguments.iter().for_each(|a| a.leaves(visit)),
            Self::Case(arms, otherwise) => {
                for (when, then) in arms {
                    when.leaves(visit);
                    then.leaves(visit);
                }
                otherwise.iter().for_each(|e| e.leaves(visit));
            }
        }
    }
}

#[inline]
fn binary(operator: Operator, left: f64, right: f64) -> Result<f64, Fault> {
    finite(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide | Operator::Remainder if right == 0.0 => return Err(Fault::DivideByZero),
        Operator::Divide => left / right,
        Operator::Remainder => left % right,
    })
}

#[inline]
fn finite(number: f64) -> Result<f64, Fault> {
    if number.is_finite() { Ok(number) } else { Err(Fault::TooLarge) }
}

fn call(function: Scalar, arguments: &[Expression], leaves: &impl Leaves) -> Result<f64, Fault> {
    let argument = |at: usize| arguments.get(at).map_or(Err(Fault::Null), |a| a.value(leaves));
    match function {
        Scalar::Abs => argument(0).map(f64::abs),
        Scalar::Floor => argument(0).map(f64::floor),
        Scalar::Ceil => argument(0).map(f64::ceil),
        Scalar::Round if arguments.len() > 1 => round(argument(0)?, argument(1)?),
        Scalar::Round => argument(0).map(f64::round),
        Scalar::Least => best(arguments, leaves, f64::min),
        Scalar::Greatest => best(arguments, leaves, f64::max),
        Scalar::Coalesce => {
            let mut last = Err(Fault::Null);
            for argument in arguments {
                last = argument.value(leaves);
                if last.is_ok() {
                    return last;
                }
            }
            last
        }
        Scalar::NullIf => match (argument(0)?, argument(1)) {
            (number, Ok(other)) if number == other => Err(Fault::Null),
            (number, _) => Ok(number),
        },
    }
}

/// Rounds to a number of decimal places, half away from zero.
fn round(number: f64, places: f64) -> Result<f64, Fault> {
    let scale = 10f64.powi(places as i32);
    let scaled = number * scale;
    // A double beyond 2^52 has no decimal places to round, and one near the largest cannot be scaled.
    if scaled.is_finite() && scale > 0.0 { finite(scaled.round() / scale) } else { Ok(number) }
}

/// Returns the least or greatest of the arguments that have a value, like PostgreSQL.
fn best(
    arguments: &[Expression],
    leaves: &impl Leaves,
    better: fn(f64, f64) -> f64,
) -> Result<f64, Fault> {
    let mut best = Err(Fault::Null);
    for argument in arguments {
        best = match (best, argument.value(leaves)) {
            (best, Err(Fault::Null)) => best,
            (_, Err(fault)) => return Err(fault),
            (Ok(best), Ok(number)) => Ok(better(best, number)),
            (Err(_), Ok(number)) => Ok(number),
        };
    }
    best
}

impl Condition {
    /// Returns true, false, or `None` for unknown.
    pub(crate) fn truth(&self, leaves: &impl Leaves) -> Option<bool> {
        self.weigh(&|test| leaves.text(test), &|compared| match compared {
            Self::Compare(comparison, left, right) => {
                let (left, right) = (left.value(leaves).ok()?, right.value(leaves).ok()?);
                Some(comparison.holds(left, right))
            }
            Self::IsNull(expression) => Some(expression.value(leaves).is_err()),
            _ => None,
        })
    }

    /// Returns the outcome as far as the texts alone decide it; `None` if it depends on numbers.
    pub(crate) fn by_texts(&self, text: &impl Fn(usize) -> Option<bool>) -> Option<bool> {
        self.weigh(text, &|_| None)
    }

    fn weigh(
        &self,
        text: &impl Fn(usize) -> Option<bool>,
        numbers: &impl Fn(&Self) -> Option<bool>,
    ) -> Option<bool> {
        match self {
            Self::Always(truth) => Some(*truth),
            Self::Text(test) => text(*test),
            Self::Compare(..) | Self::IsNull(_) => numbers(self),
            Self::Not(inner) => inner.weigh(text, numbers).map(|truth| !truth),
            Self::All(parts) => decide(parts, false, |part| part.weigh(text, numbers)),
            Self::Any(parts) => decide(parts, true, |part| part.weigh(text, numbers)),
        }
    }

    /// Calls `visit` with each leaf.
    pub(crate) fn leaves(&self, visit: &mut impl FnMut(Leaf)) {
        match self {
            Self::Always(_) | Self::Text(_) => {}
            Self::Compare(_, left, right) => {
                left.leaves(visit);
                right.leaves(visit);
            }
            Self::IsNull(expression) => expression.leaves(visit),
            Self::Not(inner) => inner.leaves(visit),
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|p| p.leaves(visit)),
        }
    }
}

/// Combines parts by Kleene's logic: one part that equals `enough` decides, and so do all parts if each is
/// the opposite.
fn decide(
    parts: &[Condition],
    enough: bool,
    truth: impl Fn(&Condition) -> Option<bool>,
) -> Option<bool> {
    let mut decided = Some(!enough);
    for part in parts {
        match truth(part) {
            Some(found) if found == enough => return Some(enough),
            Some(_) => {}
            None => decided = None,
        }
    }
    decided
}
