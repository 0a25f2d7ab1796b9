//! Existing names, and errors for unknown ones.

use crate::error::{Error, Position};
use crate::expression::Scalar;

/// The columns of both tables.
pub(super) const COLUMNS: &[&str] = &["topic", "value", "unit", "node", "kind", "age"];

/// The functions of rows.
pub(super) const AGGREGATES: &[&str] =
    &["sum", "avg", "min", "max", "count", "quantile", "median", "first", "last", "rate", "ema"];

/// Makes the error for an unknown name.
pub(super) fn unknown(
    what: &'static str,
    name: &str,
    at: Position,
    known: &[&'static str],
) -> Error {
    let wanted = name.to_lowercase();
    let mut known = known.to_vec();
    known.sort_by_key(|other| strsim::damerau_levenshtein(other, &wanted));
    Error::UnknownName { at, what, name: name.to_owned(), known }
}

/// Makes the error for an unknown function.
pub(super) fn unknown_function(name: &str, at: Position) -> Error {
    let scalars = Scalar::ALL.iter().map(|function| function.name());
    let known: Vec<&'static str> = AGGREGATES.iter().copied().chain(scalars).collect();
    unknown("function", name, at, &known)
}
