//! What a scan may leave out, by the conditions that stand above it.

use std::ops::RangeInclusive;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use skopos_model::{Timestamp, Topic};

use crate::functions::{ESCAPE, TOPIC_LIKE};
use crate::source::Wanted;

/// The topics that all of `filters` leave.
pub(crate) fn topics(filters: &[Expr]) -> Wanted {
    filters.iter().map(wanted_by).fold(Wanted::All, Wanted::and)
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
        // What `LIKE` on topics is by now.
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

/// What begins as a pattern does, before anything in it has a meaning.
pub(crate) fn beginning(pattern: &str) -> Wanted {
    let literal = pattern.split(['%', '_', '\\']).next().unwrap_or_default();
    Wanted::Starting(vec![literal.to_owned()])
}

fn equal(column: &str, texts: &[&str]) -> Wanted {
    match column {
        // What is no topic is nobody's.
        "topic" => Wanted::These(texts.iter().filter_map(|text| Topic::new(text).ok()).collect()),
        "node" => Wanted::Starting(texts.iter().map(|text| format!("{text}/")).collect()),
        _ => Wanted::All,
    }
}

fn either(one: Wanted, other: Wanted) -> Wanted {
    match (one, other) {
        (Wanted::These(mut all), Wanted::These(more)) => {
            all.extend(more);
            Wanted::These(all)
        }
        (Wanted::Starting(mut all), Wanted::Starting(more)) => {
            all.extend(more);
            Wanted::Starting(all)
        }
        _ => Wanted::All,
    }
}

/// What topics have to be like, if there is a condition that says so.
pub(crate) fn like(filters: &[Expr]) -> Option<skopos_eval::Like> {
    filters.iter().find_map(|filter| match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            like(&[(**left).clone(), (**right).clone()])
        }
        Expr::ScalarFunction(call) if call.name() == TOPIC_LIKE => match call.args.as_slice() {
            [of, pattern, escape] if column(of) == Some("topic") => {
                skopos_eval::Like::new(text(pattern)?, text(escape)?.chars().next())
            }
            _ => None,
        },
        _ => None,
    })
}

/// The texts of which a column has to be one, if there are conditions that say so.
pub(crate) fn texts(filters: &[Expr], of: &str) -> Option<Vec<String>> {
    filters.iter().find_map(|filter| texts_by(filter, of))
}

fn texts_by(filter: &Expr, of: &str) -> Option<Vec<String>> {
    let is_it = |expr: &Expr| column(expr) == Some(of);
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And => texts_by(left, of).or_else(|| texts_by(right, of)),
            Operator::Or => Some([texts_by(left, of)?, texts_by(right, of)?].concat()),
            Operator::Eq if is_it(left) => Some(vec![text(right)?.to_owned()]),
            Operator::Eq if is_it(right) => Some(vec![text(left)?.to_owned()]),
            _ => None,
        },
        Expr::InList(InList { expr, list, negated: false }) if is_it(expr) => {
            list.iter().map(|item| text(item).map(str::to_owned)).collect()
        }
        _ => None,
    }
}

/// The times that all of `filters` leave.
pub(crate) fn times(filters: &[Expr]) -> RangeInclusive<Timestamp> {
    times_of(filters, &["time", "timestamp"])
}

/// The same of columns of these names.
pub(crate) fn times_of(filters: &[Expr], names: &[&str]) -> RangeInclusive<Timestamp> {
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

/// In nanoseconds, if it is a time in that unit: the planner has brought it to the column's type.
fn time(expression: &Expr) -> Option<i64> {
    match expression {
        Expr::Literal(ScalarValue::TimestampNanosecond(time, _), _) => *time,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
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
            assert_eq!(topics(std::slice::from_ref(&filter)), expected, "{filter}");
        }
    }

    #[test]
    fn texts_are_found_in_conditions() {
        let is = |text: &str| col("class").eq(lit(text));
        let both = |texts: &[&str]| Some(texts.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        for (filters, expected) in [
            (vec![col("status").eq(lit(1)), is("a")], both(&["a"])),
            (vec![is("a").or(lit("b").eq(col("class")))], both(&["a", "b"])),
            (vec![is("a").or(col("status").eq(lit(1)))], None),
            (vec![col("status").gt(lit(1)).and(is("a"))], both(&["a"])),
            (vec![col("class").in_list(vec![lit("a"), lit("b")], false)], both(&["a", "b"])),
            (vec![col("class").in_list(vec![lit("a"), col("node")], false)], None),
            (vec![col("class").in_list(vec![lit("a")], true), col("class").not_eq(lit("a"))], None),
            (vec![col("class").eq(col("node"))], None),
        ] {
            assert_eq!(texts(&filters, "class"), expected, "{filters:?}");
        }
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
}
