//! Expressions as they are computed: no names any more, nothing to allocate.
//!
//! An expression has a value or a [`Fault`]; `NULL` is one of the faults. A condition is true, false
//! or unknown, as in SQL: it is unknown where an expression in it has no value.

use skopos_model::Unit;

/// A number, or how it is computed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    /// A literal. It has a unit if it is an interval; any other takes the unit of what it is added
    /// to or compared with.
    Number(f64, Option<Unit>),
    /// What the row or the result gives.
    Leaf(Leaf),
    Negate(Box<Expression>),
    Binary(Operator, Box<Expression>, Box<Expression>),
    Call(Scalar, Vec<Expression>),
    /// The first whose condition is true; else the last.
    Case(Vec<(Condition, Expression)>, Option<Box<Expression>>),
    Null,
}

/// What an expression is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// The value of the row.
    Value,
    /// Its change per second since the poll before.
    Rate,
    /// How long ago its source was last looked at, in seconds.
    Age,
    /// Its exponential mean, by its place in `Program::emas`.
    Ema(usize),
    /// An aggregate, by its place in `Program::aggregates`.
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
    /// A test of the row's texts, by its place in `Program::texts`.
    Text(usize),
    Compare(Comparison, Expression, Expression),
    IsNull(Expression),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
}

/// Comparisons of two numbers.
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

/// Why an expression has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nobody has said a value: `NULL`.
    Null,
    DivideByZero,
    /// Beyond the largest double.
    TooLarge,
    /// One of the rows of the aggregate has a fault.
    Row,
    /// More rows than the one that is wanted.
    Several,
    /// The aggregate in this place has a fault.
    Aggregate(usize),
}

/// Where leaves get their values.
pub(crate) trait Leaves {
    /// The value of a leaf.
    fn leaf(&self, leaf: Leaf) -> Result<f64, Fault>;

    /// Whether a test of texts holds; `None` if that is not known.
    fn text(&self, test: usize) -> Option<bool>;
}

impl Expression {
    /// The value, always finite.
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

/// To a number of decimal places, half away from zero.
fn round(number: f64, places: f64) -> Result<f64, Fault> {
    let scale = 10f64.powi(places as i32);
    let scaled = number * scale;
    // Beyond 2^52 a double has no places to round; beyond the largest it cannot be scaled.
    if scaled.is_finite() && scale > 0.0 { finite(scaled.round() / scale) } else { Ok(number) }
}

/// The least or greatest of those that have a value, as PostgreSQL has it.
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
    /// True, false, or `None`: unknown.
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

    /// What can be said by the texts alone, whatever the numbers are; `None` if they decide.
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

/// Kleene's logic: one part that is `enough` decides, and so do all parts if each is the opposite.
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
