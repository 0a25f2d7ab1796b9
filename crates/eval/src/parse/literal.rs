//! Literals: numbers, texts and intervals.

use std::time::Duration;

use sqlparser::ast::{Expr, Interval, UnaryOperator, Value};

/// The longest interval: a year. Older samples are history, and 64 bits of nanoseconds hold 292 years.
pub(super) const MAX_INTERVAL: Duration = Duration::from_secs(366 * 86_400);

/// Returns the value of a literal number with its sign.
pub(super) fn number(expression: &Expr) -> Option<f64> {
    match expression {
        Expr::Value(value) => match &value.value {
            Value::Number(text, false) => text.parse().ok().filter(|n: &f64| n.is_finite()),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            literal @ Expr::Value(_) => number(literal).map(|number| -number),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the text of a literal in single quotes.
pub(super) fn text(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the length of an interval: `INTERVAL '60 s'`, `INTERVAL '1 h 30 min'`, `INTERVAL '5' MINUTE`.
pub(super) fn interval(interval: &Interval) -> Option<Duration> {
    if interval.leading_precision.is_some()
        || interval.last_field.is_some()
        || interval.fractional_seconds_precision.is_some()
    {
        return None;
    }
    let seconds = match (&interval.leading_field, text(&interval.value)) {
        (Some(field), written) => {
            let count = match written {
                Some(text) => text.trim().parse().ok()?,
                None => number(&interval.value)?,
            };
            count * seconds_of(&field.to_string().to_lowercase())?
        }
        (None, Some(written)) => parts(written)?,
        (None, None) => return None,
    };
    let length = Duration::try_from_secs_f64(seconds).ok()?;
    (!length.is_zero() && length <= MAX_INTERVAL).then_some(length)
}

/// Returns the seconds of a text like `1 h 30 min` or `90s`.
fn parts(text: &str) -> Option<f64> {
    let mut rest = text.trim_start();
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let count: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let word = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        seconds += count * seconds_of(&rest[..word].to_lowercase())?;
        rest = rest[word..].trim_start();
    }
    Some(seconds)
}

fn seconds_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "us" | "microsecond" | "microseconds" => 1e-6,
        "ms" | "millisecond" | "milliseconds" => 1e-3,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        for (text, expected) in [
            ("60 s", Some(60.0)),
            ("1.5h", Some(5400.0)),
            ("1 h 30 min", Some(5400.0)),
            ("2 days", Some(172_800.0)),
            ("60", None),
            ("s", None),
            ("5 parsecs", None),
            ("1.2.3 s", None),
            ("-1 s", None),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
    }
}
