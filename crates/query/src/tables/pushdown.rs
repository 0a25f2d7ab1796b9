//! Conditions of a statement that a scan can use: on topics, on times, and equality.
//!
//! All of them are only allowed to leave out rows that the statement does not need, so a condition that is
//! not understood is left out. A condition that is [exact](is_exact) need not be applied again, if the table
//! shows no row that does not fit it.

use std::ops::RangeInclusive;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{InList, Like};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use skopos_model::{Timestamp, Topic};

use crate::functions::has::{HAS, HAS_WORDS};
use crate::functions::{ESCAPE, TOPIC_LIKE};
use crate::scan::{Call, Literal};
use crate::source::Wanted;
use crate::topic_filter::{Condition, TopicFilter};

/// Returns the topics that fit all of `filters`, as exactly as a source can select them.
pub(crate) fn wanted(filters: &[Expr]) -> Wanted {
    filters.iter().map(wanted_by).fold(Wanted::All, Wanted::and)
}

/// Returns the topics that fit all of `filters`.
pub(crate) fn topic_filter(filters: &[Expr]) -> TopicFilter {
    let like = like(filters).map(Condition::Like);
    let families = texts(filters, "family").map(Condition::Families);
    let metrics = texts(filters, "metric").map(Condition::Metrics);
    TopicFilter::from(wanted(filters)).and([like, families, metrics].into_iter().flatten())
}

fn wanted_by(filter: &Expr) -> Wanted {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And => wanted_by(left).and(wanted_by(right)),
            Operator::Or => either(wanted_by(left), wanted_by(right)),
            Operator::Eq => match (column(left), text(right), column(right), text(left)) {
                (Some(column), Some(text), ..) | (_, _, Some(column), Some(text)) => {
                    equal(column, &[text])
                }
                _ => Wanted::All,
            },
            _ => Wanted::All,
        },
        Expr::InList(InList { expr, list, negated: false }) => {
            let texts: Option<Vec<&str>> = list.iter().map(text).collect();
            match (column(expr), texts) {
                (Some(column), Some(texts)) => equal(column, &texts),
                _ => Wanted::All,
            }
        }
        Expr::Like(Like {
            negated: false,
            expr,
            pattern,
            escape_char: None,
            case_insensitive: false,
        }) => match (column(expr), text(pattern)) {
            (Some("topic"), Some(pattern)) => beginning(pattern),
            _ => Wanted::All,
        },
        // The form that `LIKE` on topics has in a plan.
        Expr::ScalarFunction(call) if call.name() == TOPIC_LIKE => match call.args.as_slice() {
            [of, pattern, escape] => match (column(of), text(pattern), text(escape)) {
                (Some("topic"), Some(pattern), Some(ESCAPE)) => beginning(pattern),
                _ => Wanted::All,
            },
            _ => Wanted::All,
        },
        _ => Wanted::All,
    }
}

/// Returns the topics that begin with the text of a pattern before its first special character.
pub(crate) fn beginning(pattern: &str) -> Wanted {
    let literal = pattern.split(['%', '_', '\\']).next().unwrap_or_default();
    Wanted::Starting(vec![literal.to_owned()])
}

fn equal(column: &str, texts: &[&str]) -> Wanted {
    match column {
        // A text that is not a topic selects no row.
        "topic" => these(texts.iter().filter_map(|text| Topic::new(text).ok()).collect()),
        "node" => Wanted::Starting(texts.iter().map(|text| format!("{text}/")).collect()),
        _ => Wanted::All,
    }
}

/// Wants each of these topics once.
fn these(mut topics: Vec<Topic>) -> Wanted {
    topics.sort_unstable();
    topics.dedup();
    Wanted::These(topics)
}

fn either(one: Wanted, other: Wanted) -> Wanted {
    match (one, other) {
        (Wanted::These(mut all), Wanted::These(more)) => {
            all.extend(more);
            these(all)
        }
        (Wanted::Starting(mut all), Wanted::Starting(more)) => {
            all.extend(more);
            Wanted::Starting(all)
        }
        _ => Wanted::All,
    }
}

/// Returns the pattern of a condition `topic LIKE`, if there is one.
fn like(filters: &[Expr]) -> Option<skopos_eval::Like> {
    filters.iter().find_map(like_by)
}

fn like_by(filter: &Expr) -> Option<skopos_eval::Like> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            like_by(left).or_else(|| like_by(right))
        }
        Expr::ScalarFunction(call) if call.name() == TOPIC_LIKE => match call.args.as_slice() {
            [of, pattern, escape] if column(of) == Some("topic") => {
                skopos_eval::Like::new(text(pattern)?, text(escape)?.chars().next())
            }
            _ => None,
        },
        _ => None,
    }
}

/// Returns the texts that a column must equal one of, if all its constants are texts.
fn texts(filters: &[Expr], column: &str) -> Option<Vec<String>> {
    let text = |literal| match literal {
        Literal::Text(text) => Some(text),
        _ => None,
    };
    equals(filters, column)?.into_iter().map(text).collect()
}

/// Returns for each column in `filters` the constants that it must equal one of.
pub(crate) fn all_equals(filters: &[Expr]) -> Vec<(String, Vec<Literal>)> {
    let mut all: Vec<(String, Vec<Literal>)> = Vec::new();
    for name in filters.iter().flat_map(Expr::column_refs).map(|column| &column.name) {
        if all.iter().all(|(other, _)| other != name)
            && let Some(literals) = equals(filters, name)
        {
            all.push((name.clone(), literals));
        }
    }
    all
}

fn equals(filters: &[Expr], column: &str) -> Option<Vec<Literal>> {
    let each = filters.iter().filter_map(|filter| equals_by(filter, column));
    // Other constants than texts may be equal in another form.
    each.reduce(|mut all, more| match are_texts(&all) && are_texts(&more) {
        true => {
            all.retain(|text| more.contains(text));
            all
        }
        false => all,
    })
}

fn are_texts(literals: &[Literal]) -> bool {
    literals.iter().all(|literal| literal.as_text().is_some())
}

/// Returns true if a scan that applies all that it knows of one of these columns applies the whole condition: equality
/// with texts, or bounds of times that are within the range.
pub(crate) fn is_exact(filter: &Expr, columns: &[&str]) -> bool {
    columns.iter().any(|column| is_one_of(filter, column) || is_range(filter, column))
}

fn is_one_of(filter: &Expr, of: &str) -> bool {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            is_one_of(left, of) && is_one_of(right, of)
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::Eq, .. }) | Expr::InList(_) => {
            equals_by(filter, of).is_some_and(|literals| are_texts(&literals))
        }
        _ => false,
    }
}

fn is_range(filter: &Expr, of: &str) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { return false };
    let is_bound = |column_side: &Expr, time_side: &Expr| {
        column(column_side) == Some(of) && time(time_side).is_some()
    };
    match op {
        Operator::And => is_range(left, of) && is_range(right, of),
        Operator::Eq | Operator::GtEq | Operator::LtEq => {
            is_bound(left, right) || is_bound(right, left)
        }
        _ => false,
    }
}

fn equals_by(filter: &Expr, of: &str) -> Option<Vec<Literal>> {
    let is_it = |expr: &Expr| column(expr) == Some(of);
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And => equals_by(left, of).or_else(|| equals_by(right, of)),
            Operator::Or => Some([equals_by(left, of)?, equals_by(right, of)?].concat()),
            Operator::Eq if is_it(left) => Some(vec![literal(right)?]),
            Operator::Eq if is_it(right) => Some(vec![literal(left)?]),
            _ => None,
        },
        Expr::InList(InList { expr, list, negated: false }) if is_it(expr) => {
            list.iter().map(literal).collect()
        }
        _ => None,
    }
}

/// Returns the conditions `has(column, 'text')` and `has_words(column, 'text')`, all of which must hold.
pub(crate) fn all_calls(filters: &[Expr]) -> Vec<Call> {
    let mut calls = Vec::new();
    filters.iter().for_each(|filter| add_calls(filter, &mut calls));
    calls
}

fn add_calls(filter: &Expr, calls: &mut Vec<Call>) {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            add_calls(left, calls);
            add_calls(right, calls);
        }
        Expr::ScalarFunction(call) => {
            let function = [HAS, HAS_WORDS].into_iter().find(|name| call.name() == *name);
            if let (Some(function), [of, asked]) = (function, call.args.as_slice())
                && let (Some(column), Some(text)) = (column(of), text(asked))
            {
                calls.push(Call { function, column: column.to_owned(), text: text.to_owned() });
            }
        }
        _ => {}
    }
}

/// Returns for each column of doubles and of whole numbers the range that it must be in, if `filters` bound it.
pub(crate) fn all_numbers(filters: &[Expr], schema: &Schema) -> Vec<(String, RangeInclusive<f64>)> {
    let of_column = |name: &str| {
        let (mut from, mut to) = (f64::NEG_INFINITY, f64::INFINITY);
        filters.iter().for_each(|filter| narrow_numbers(filter, name, &mut from, &mut to));
        (name.to_owned(), from..=to)
    };
    let is_number = |of: &DataType| matches!(of, DataType::Float64 | DataType::Int64);
    let columns = schema.fields().iter().filter(|field| is_number(field.data_type()));
    let unbounded = f64::NEG_INFINITY..=f64::INFINITY;
    columns.map(|field| of_column(field.name())).filter(|(_, range)| *range != unbounded).collect()
}

fn narrow_numbers(filter: &Expr, of: &str, from: &mut f64, to: &mut f64) {
    let (left, op, right) = match filter {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => (left, *op, right),
        Expr::Between(Between { expr, negated: false, low, high }) if column(expr) == Some(of) => {
            if let (Some(low), Some(high)) = (number(low), number(high)) {
                (*from, *to) = (low.max(*from), high.min(*to));
            }
            return;
        }
        _ => return,
    };
    if op == Operator::And {
        narrow_numbers(left, of, from, to);
        narrow_numbers(right, of, from, to);
        return;
    }
    let (name, at, op) = match (column(left), number(right), column(right), number(left)) {
        (Some(name), Some(at), ..) => (name, at, op),
        (_, _, Some(name), Some(at)) => (name, at, op.swap().unwrap_or(op)),
        _ => return,
    };
    if name != of {
        return;
    }
    match op {
        Operator::Gt | Operator::GtEq => *from = at.max(*from),
        Operator::Lt | Operator::LtEq => *to = at.min(*to),
        Operator::Eq => (*from, *to) = (at.max(*from), at.min(*to)),
        _ => {}
    }
}

/// Returns a constant number; `None` for a NaN, with which SQL compares in its own way.
fn number(expression: &Expr) -> Option<f64> {
    let number = match literal(expression)? {
        Literal::Number(number) => number,
        Literal::Integer(number) => number as f64,
        Literal::Text(_) | Literal::Boolean(_) => return None,
    };
    Some(number).filter(|number| !number.is_nan())
}

/// Returns the range that samples must be in.
pub(crate) fn times(filters: &[Expr]) -> RangeInclusive<Timestamp> {
    times_of(filters, &["time", "timestamp"])
}

/// Returns for each column of times the range that it must be in, if `filters` bound it.
pub(crate) fn all_times(
    filters: &[Expr],
    schema: &Schema,
) -> Vec<(String, RangeInclusive<Timestamp>)> {
    let unbounded = times_of(&[], &[]);
    let of_column = |name: &str| (name.to_owned(), times_of(filters, &[name]));
    let is_time = |data_type: &DataType| matches!(data_type, DataType::Timestamp(..));
    let columns = schema.fields().iter().filter(|field| is_time(field.data_type()));
    let all = columns.map(|field| of_column(field.name()));
    all.filter(|(_, range)| *range != unbounded).collect()
}

fn times_of(filters: &[Expr], names: &[&str]) -> RangeInclusive<Timestamp> {
    let (mut from, mut to) = (i64::MIN, i64::MAX);
    for filter in filters {
        narrow(filter, names, &mut from, &mut to);
    }
    Timestamp::from_nanos(from)..=Timestamp::from_nanos(to)
}

fn narrow(filter: &Expr, names: &[&str], from: &mut i64, to: &mut i64) {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { return };
    if *op == Operator::And {
        narrow(left, names, from, to);
        narrow(right, names, from, to);
        return;
    }
    let (name, at, op) = match (column(left), time(right), column(right), time(left)) {
        (Some(name), Some(at), ..) => (name, at, *op),
        (_, _, Some(name), Some(at)) => (name, at, op.swap().unwrap_or(*op)),
        _ => return,
    };
    if !names.contains(&name) {
        return;
    }
    match op {
        Operator::Gt | Operator::GtEq => *from = at.max(*from),
        Operator::Lt | Operator::LtEq => *to = at.min(*to),
        Operator::Eq => (*from, *to) = (at.max(*from), at.min(*to)),
        _ => {}
    }
}

fn column(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Column(column) => Some(&column.name),
        _ => None,
    }
}

fn text(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

fn literal(expression: &Expr) -> Option<Literal> {
    let Expr::Literal(value, _) = expression else { return None };
    if let Some(text) = value.try_as_str() {
        return text.map(|text| Literal::Text(text.to_owned()));
    }
    match value {
        ScalarValue::Boolean(value) => value.map(Literal::Boolean),
        ScalarValue::Float64(value) => value.map(Literal::Number),
        ScalarValue::Int8(value) => value.map(|value| Literal::Integer(value.into())),
        ScalarValue::Int16(value) => value.map(|value| Literal::Integer(value.into())),
        ScalarValue::Int32(value) => value.map(|value| Literal::Integer(value.into())),
        ScalarValue::Int64(value) => value.map(Literal::Integer),
        ScalarValue::UInt8(value) => value.map(|value| Literal::Integer(value.into())),
        ScalarValue::UInt16(value) => value.map(|value| Literal::Integer(value.into())),
        ScalarValue::UInt32(value) => value.map(|value| Literal::Integer(value.into())),
        ScalarValue::UInt64(value) => value.and_then(|v| v.try_into().ok()).map(Literal::Integer),
        _ => None,
    }
}

/// Returns a constant time in nanoseconds. The planner has cast it to the type of its column.
fn time(expression: &Expr) -> Option<i64> {
    match expression {
        Expr::Literal(ScalarValue::TimestampNanosecond(time, _), _) => *time,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn topics_are_found_in_conditions() {
        let these = |topics: &[&str]| {
            Wanted::These(topics.iter().map(|t| Topic::new(t).expect("a topic")).collect())
        };
        let starting = |s: &[&str]| Wanted::Starting(s.iter().map(|s| (*s).to_owned()).collect());
        for (filter, expected) in [
            (col("topic").eq(lit("n1/a")), these(&["n1/a"])),
            (lit("n1/a").eq(col("topic")), these(&["n1/a"])),
            (col("topic").eq(lit("No Topic")), these(&[])),
            (col("topic").in_list(vec![lit("n1/a"), lit("n2/a")], false), these(&["n1/a", "n2/a"])),
            (col("topic").in_list(vec![lit("n1/a")], true), Wanted::All),
            (col("topic").like(lit("n1/mem%")), starting(&["n1/mem"])),
            (col("topic").like(lit("%/mem")), starting(&[""])),
            (col("topic").not_like(lit("n1/%")), Wanted::All),
            (col("node").eq(lit("n1")).or(col("node").eq(lit("n2"))), starting(&["n1/", "n2/"])),
            (col("node").eq(lit("n1")).or(col("value").gt(lit(1.0))), Wanted::All),
            (col("topic").eq(lit("n1/a")).and(col("node").eq(lit("n2"))), these(&[])),
        ] {
            assert_eq!(wanted(std::slice::from_ref(&filter)), expected, "{filter}");
        }
    }

    #[test]
    fn equalities_are_found_in_conditions() {
        let is = |text: &str| col("class").eq(lit(text));
        let both = |texts: &[&str]| {
            Some(texts.iter().map(|text| Literal::Text((*text).to_owned())).collect::<Vec<_>>())
        };
        for (filters, expected) in [
            (vec![col("status").eq(lit(1)), is("a")], both(&["a"])),
            (vec![is("a").or(lit("b").eq(col("class")))], both(&["a", "b"])),
            (vec![is("a").or(col("status").eq(lit(1)))], None),
            (vec![col("status").gt(lit(1)).and(is("a"))], both(&["a"])),
            (vec![col("class").in_list(vec![lit("a"), lit("b")], false)], both(&["a", "b"])),
            (vec![col("class").in_list(vec![lit("a"), col("node")], false)], None),
            (vec![col("class").in_list(vec![lit("a")], true), col("class").not_eq(lit("a"))], None),
            (vec![col("class").eq(col("node"))], None),
            (vec![col("class").eq(lit(3_i64))], Some(vec![Literal::Integer(3)])),
            (vec![is("a").or(is("b")), is("b").or(is("c"))], both(&["b"])),
            (vec![is("a"), is("b")], both(&[])),
        ] {
            assert_eq!(equals(&filters, "class"), expected, "{filters:?}");
        }
        let filters = [col("status").eq(lit(1)).and(is("a")), col("level").gt(lit(2))];
        let mut all = all_equals(&filters);
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let status = ("status".to_owned(), vec![Literal::Integer(1)]);
        assert_eq!(all, [("class".to_owned(), both(&["a"]).expect("one")), status]);
    }

    #[test]
    fn conditions_that_a_scan_knows_as_a_whole_are_exact() {
        let is = |text: &str| col("class").eq(lit(text));
        let at = |nanos: i64| lit(ScalarValue::TimestampNanosecond(Some(nanos), None));
        for (filter, expected) in [
            (is("a"), true),
            (lit("a").eq(col("class")).or(is("b")), true),
            (col("class").in_list(vec![lit("a"), lit("b")], false), true),
            (col("class").in_list(vec![lit("a")], true), false),
            (col("class").in_list(vec![lit("a"), lit(ScalarValue::Utf8(None))], false), false),
            (is("a").and(is("b")), false),
            (is("a").or(col("other").eq(lit("a"))), false),
            (col("other").eq(lit("a")), false),
            (col("class").eq(col("other")), false),
            (col("class").eq(lit(1_i64)), false),
            (col("class").gt_eq(lit("a")), false),
            (col("time").gt_eq(at(5)).and(at(9).gt_eq(col("time"))), true),
            (col("time").eq(at(5)), true),
            (col("time").gt(at(5)), false),
            (col("time").lt(at(5)), false),
            (col("time").gt_eq(at(5)).or(col("time").lt_eq(at(3))), false),
            (col("time").gt_eq(lit(ScalarValue::TimestampNanosecond(None, None))), false),
        ] {
            assert_eq!(is_exact(&filter, &["class", "time"]), expected, "{filter}");
            assert!(!is_exact(&filter, &[]), "{filter}");
        }
    }

    #[test]
    fn ranges_of_numbers_are_found_in_conditions() {
        let schema = Schema::new(vec![
            Field::new("bytes", DataType::Float64, true),
            Field::new("nodes", DataType::Int64, true),
            Field::new("name", DataType::Utf8, true),
        ]);
        for (filters, expected) in [
            (vec![col("bytes").gt(lit(5.0)), lit(9_i64).gt_eq(col("bytes"))], "bytes 5..=9"),
            (vec![col("nodes").eq(lit(2_i64)).and(col("name").eq(lit("a")))], "nodes 2..=2"),
            (vec![col("bytes").between(lit(1.0), lit(3.0))], "bytes 1..=3"),
            (vec![col("bytes").gt(lit(5.0)).or(col("nodes").eq(lit(2_i64)))], ""),
            (vec![col("bytes").gt(lit(f64::NAN)), col("bytes").not_eq(lit(1.0))], ""),
            (vec![col("bytes").lt(col("nodes"))], ""),
        ] {
            let found = all_numbers(&filters, &schema);
            let found: Vec<String> =
                found.iter().map(|(n, range)| format!("{n} {range:?}")).collect();
            assert_eq!(found.join(", ").replace(".0", ""), expected, "{filters:?}");
        }
    }

    #[test]
    fn calls_are_found_in_conditions_that_must_hold() {
        let functions: Vec<_> = crate::functions::has::all().collect();
        let call =
            |at: usize, column: &str, text: &str| functions[at].call(vec![col(column), lit(text)]);
        let both = call(0, "tags", "a").and(call(1, "text", "grom*"));
        let found = all_calls(&[both, call(0, "tags", "b"), call(0, "tags", "c").or(lit(true))]);
        let found: Vec<String> =
            found.iter().map(|c| format!("{} {} {}", c.function, c.column, c.text)).collect();
        assert_eq!(found, ["has tags a", "has_words text grom*", "has tags b"]);
    }

    #[test]
    fn times_are_found_in_conditions() {
        let at = |nanos: i64| lit(ScalarValue::TimestampNanosecond(Some(nanos), None));
        let filters =
            [col("time").gt_eq(at(5)).and(at(9).gt(col("time"))), col("value").gt(lit(3))];
        assert_eq!(times(&filters), Timestamp::from_nanos(5)..=Timestamp::from_nanos(9));
        let open = times(&[col("time").gt(at(5)).or(col("time").lt(at(3)))]);
        assert_eq!(open, Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX));
    }

    #[test]
    fn a_topic_that_is_named_twice_is_wanted_once() {
        let name = "n1/a";
        let twice = col("topic").in_list(vec![lit(name), lit("n1/b"), lit(name)], false);
        let either = col("topic").eq(lit(name)).or(col("topic").eq(lit(name)));
        let topics = |names: &[&str]| {
            Wanted::These(names.iter().map(|t| Topic::new(t).expect("a topic")).collect())
        };
        assert_eq!(wanted(&[twice]), topics(&["n1/a", "n1/b"]));
        assert_eq!(wanted(&[either]), topics(&["n1/a"]));
    }
}
