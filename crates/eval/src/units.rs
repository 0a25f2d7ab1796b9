//! Units of results, computed from the units of their operands.
//!
//! A literal takes the unit of its context: added to bytes it is bytes, in a product it is a plain number.
//! A ratio in a product or quotient is a plain number.

use skopos_model::Unit;

use crate::expression::{Condition, Expression, Leaf, Operator};
use crate::program::{Function, Program};
use crate::unknown::Unknown;

/// Returns the unit of `expression`; `None` if it fits any unit.
///
/// # Errors
/// [`Unknown::Arithmetic`] if units cannot be combined, and the errors of `leaf`.
pub(crate) fn unit_of(
    expression: &Expression,
    leaf: &impl Fn(Leaf) -> Result<Option<Unit>, Unknown>,
) -> Result<Option<Unit>, Unknown> {
    match expression {
        Expression::Number(_, unit) => Ok(*unit),
        Expression::Null => Ok(None),
        Expression::Leaf(found) => leaf(*found),
        Expression::Negate(inner) => unit_of(inner, leaf),
        Expression::Binary(operator, left, right) => {
            let (left, right) = (unit_of(left, leaf)?, unit_of(right, leaf)?);
            match operator {
                Operator::Multiply => product(left, right),
                Operator::Divide => quotient(left, right),
                _ => same(operator.name(), left, right),
            }
        }
        Expression::Call(function, arguments) => {
            // The number of places of `round` is not part of the value.
            let counted = if function.name() == "round" { 1 } else { arguments.len() };
            arguments[..counted].iter().try_fold(None, |unit, argument| {
                same(function.name(), unit, unit_of(argument, leaf)?)
            })
        }
        Expression::Case(arms, otherwise) => {
            let mut unit = None;
            for (when, then) in arms {
                check(when, leaf)?;
                unit = same("case", unit, unit_of(then, leaf)?)?;
            }
            match otherwise {
                Some(otherwise) => same("case", unit, unit_of(otherwise, leaf)?),
                None => Ok(unit),
            }
        }
    }
}

/// Checks that compared expressions have the same unit.
fn check(
    condition: &Condition,
    leaf: &impl Fn(Leaf) -> Result<Option<Unit>, Unknown>,
) -> Result<(), Unknown> {
    match condition {
        Condition::Always(_) | Condition::Text(_) => Ok(()),
        Condition::Compare(_, left, right) => {
            same("compared with", unit_of(left, leaf)?, unit_of(right, leaf)?).map(drop)
        }
        Condition::IsNull(expression) => unit_of(expression, leaf).map(drop),
        Condition::Not(inner) => check(inner, leaf),
        Condition::All(parts) | Condition::Any(parts) => {
            parts.iter().try_for_each(|part| check(part, leaf))
        }
    }
}

fn same(
    operator: &'static str,
    left: Option<Unit>,
    right: Option<Unit>,
) -> Result<Option<Unit>, Unknown> {
    match (left, right) {
        (Some(left), Some(right)) if left != right => Err(trouble(operator, left, right)),
        (left, right) => Ok(left.or(right)),
    }
}

fn trouble(operator: &'static str, left: Unit, right: Unit) -> Unknown {
    Unknown::Arithmetic { operator, left: left.to_string(), right: right.to_string() }
}

fn product(left: Option<Unit>, right: Option<Unit>) -> Result<Option<Unit>, Unknown> {
    match (left, right) {
        (Some(left), Some(right)) => {
            let ((a, b), (c, d)) = (parts(&left), parts(&right));
            if left == Unit::RATIO && right == Unit::RATIO {
                return Ok(Some(Unit::RATIO));
            }
            named([a, c], [b, d]).map(Some).ok_or_else(|| trouble("*", left, right))
        }
        (left, right) => Ok(left.or(right)),
    }
}

fn quotient(left: Option<Unit>, right: Option<Unit>) -> Result<Option<Unit>, Unknown> {
    let Some(right) = right else { return Ok(left) };
    let left = left.unwrap_or(Unit::NONE);
    let ((a, b), (c, d)) = (parts(&left), parts(&right));
    named([a, d], [b, c]).map(Some).ok_or_else(|| trouble("/", left, right))
}

/// Returns the unit of a change per second of `unit`.
pub(crate) fn per_second(unit: Unit) -> Result<Unit, Unknown> {
    let (above, below) = parts(&unit);
    named([above, ""], [below, "s"]).ok_or_else(|| trouble("/", unit, Unit::SECONDS))
}

impl Program {
    /// Returns the unit of an aggregate over values of `unit`; `None` if it fits any unit.
    pub(crate) fn unit_of_aggregate(
        &self,
        at: usize,
        unit: Option<Unit>,
    ) -> Result<Option<Unit>, Unknown> {
        let aggregate = &self.aggregates[at];
        if aggregate.function == Function::Count {
            return Ok(Some(Unit::NONE));
        }
        let per_second = || unit.map(per_second).transpose();
        let argument = unit_of(&aggregate.argument, &|leaf| match leaf {
            Leaf::Ema(at) if self.emas[at].of_rate => per_second(),
            Leaf::Value | Leaf::Ema(_) => Ok(unit),
            Leaf::Rate => per_second(),
            Leaf::Age => Ok(Some(Unit::SECONDS)),
            Leaf::Aggregate(_) => Ok(None),
        })?;
        if aggregate.function == Function::Rate { per_second() } else { Ok(argument) }
    }

    /// Returns true if an aggregate is computed from values, so that their units matter.
    pub(crate) fn needs_unit(&self, at: usize) -> bool {
        let aggregate = &self.aggregates[at];
        let mut needs = false;
        aggregate.argument.leaves(&mut |leaf| needs |= !matches!(leaf, Leaf::Age));
        needs && aggregate.function != Function::Count
    }
}

/// Splits a unit into numerator and denominator. Seconds are `s` on both sides, and plain numbers and
/// ratios are empty.
fn parts(unit: &Unit) -> (&str, &str) {
    let text = if *unit == Unit::RATIO { "" } else { unit.as_str() };
    let (above, below) = text.split_once('/').unwrap_or((text, ""));
    let short = |part| if part == Unit::SECONDS.as_str() { "s" } else { part };
    (short(above), short(below))
}

/// Returns the unit with these factors in numerator and denominator; `None` if more than one factor is left
/// on a side, because such units have no name.
fn named<'a>(mut above: [&'a str; 2], mut below: [&'a str; 2]) -> Option<Unit> {
    for factor in &mut above {
        if let Some(other) = below.iter_mut().find(|other| **other == *factor) {
            (*factor, *other) = ("", "");
        }
    }
    let one = |factors: [&'a str; 2]| match factors {
        ["", factor] | [factor, ""] => Some(factor),
        _ => None,
    };
    match (one(above)?, one(below)?) {
        ("s", "") => Some(Unit::SECONDS),
        (above, "") => Unit::new(above).ok(),
        (above, below) if !below.contains('/') => Unit::new(&format!("{above}/{below}")).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operator: &str, left: &str, right: &str, expected: &str) {
        let unit = |text: &str| (text != "any").then(|| Unit::known(text_of(text)));
        let (left, right) = (unit(left), unit(right));
        let found = match operator {
            "*" => product(left, right),
            "/" => quotient(left, right),
            _ => same("+", left, right),
        };
        let found = match found {
            Ok(None) => "any".to_owned(),
            Ok(Some(unit)) => unit.to_string(),
            Err(_) => "no".to_owned(),
        };
        assert_eq!(found, expected, "{left:?} {operator} {right:?}");
    }

    fn text_of(text: &str) -> &str {
        if text == "plain" { "" } else { text }
    }

    #[test]
    fn arithmetic_of_units() {
        check("+", "bytes", "bytes", "bytes");
        check("+", "bytes", "any", "bytes");
        check("+", "bytes", "plain", "no");
        check("+", "any", "any", "any");
        check("*", "bytes", "any", "bytes");
        check("*", "bytes", "plain", "bytes");
        check("*", "bytes", "ratio", "bytes");
        check("*", "ratio", "ratio", "ratio");
        check("*", "bytes/s", "seconds", "bytes");
        check("*", "bytes", "bytes", "no");
        check("/", "bytes", "bytes", "");
        check("/", "ratio", "ratio", "");
        check("/", "bytes", "any", "bytes");
        check("/", "bytes", "seconds", "bytes/s");
        check("/", "bytes", "bytes/s", "seconds");
        check("/", "joules", "bytes", "joules/bytes");
        check("/", "any", "seconds", "/s");
        check("/", "bytes/s", "seconds", "no");
        assert_eq!(per_second(Unit::SECONDS), Ok(Unit::NONE));
        assert_eq!(per_second(Unit::BYTES).map(|u| u.to_string()), Ok("bytes/s".to_owned()));
    }
}
