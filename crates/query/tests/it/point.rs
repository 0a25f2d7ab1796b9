//! Point reads and the planner give the same answers, over generated statements and worlds.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use skopos_access::Caller;
use skopos_model::{Origin, Structured, Unit, Value};
use skopos_query::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use skopos_query::arrow::datatypes::{DataType, Field, Schema};
use skopos_query::{Engine, Limits, Way};

use crate::world::{World, ask, block_on, rows};

const TOPICS: [&str; 9] = [
    "n01/mem/available_bytes",
    "n02/mem/available_bytes",
    "n01/mem/total_bytes",
    "n01/fs/a/available_bytes",
    "n01/fs/a_b/available_bytes",
    "n01/fs/axb/available_bytes",
    "n02/load/load1",
    "n02/load/load5",
    "x",
];

/// Names of tables of one topic: aliases, topics in quotes, and topics as plain names. `x` is not among them:
/// a topic without a slash has no table of its own name.
const TABLES: [&str; 11] = [
    "\"n01/mem/available_bytes\"",
    "\"n02/mem/available_bytes\"",
    "\"n01/mem/total_bytes\"",
    "\"n01/fs/a/available_bytes\"",
    "\"n01/fs/a_b/available_bytes\"",
    "\"n02/load/load1\"",
    "n02_load_load5",
    "N01_mem_total_bytes",
    "capacity",
    "Capacity",
    "nobodys",
];

const ALIASES: [(&str, &str); 2] =
    [("capacity", "n01/mem/available_bytes"), ("nobodys", "n09/mem/available_bytes")];

/// Makes a value and its origin. Numbers are small integers, so that sums and results of two numbers are
/// exact both ways.
fn value_and_origin() -> impl Strategy<Value = (Value, Origin)> {
    let number = (-20i32..20).prop_map(|n| Value::F64(f64::from(n)));
    prop_oneof![
        6 => number.clone().prop_map(|n| (n, Origin::Measured)),
        1 => number.clone().prop_map(|n| (n, Origin::Unknown)),
        1 => (number, 0i32..2).prop_map(|(n, b)| (n, Origin::Predicted { bound: f64::from(b) })),
        1 => select(vec!["a", "b"])
            .prop_map(|t| (Value::Structured(Structured::text(t)), Origin::Measured)),
        1 => Just((Value::F64(0.0), Origin::Measured)),
    ]
}

fn world(units: &'static [Unit]) -> impl Strategy<Value = World> {
    let vertex = (proptest::collection::vec(value_and_origin(), 0..4), select(units.to_vec()));
    proptest::collection::vec(vertex, TOPICS.len()).prop_map(|vertices| {
        let named = TOPICS.iter().zip(vertices);
        named.fold(World::default(), |world, (topic, (made, unit))| {
            world.with_samples(topic, unit, made)
        })
    })
}

/// Makes some items of a list of columns, some with an alias.
fn items(all: &'static [&'static str]) -> impl Strategy<Value = String> {
    let item = (select(all.to_vec()), proptest::option::weighted(0.3, 0..3usize));
    proptest::collection::vec(item, 1..4).prop_map(|items| {
        let mut shown: Vec<String> = Vec::new();
        for (at, (item, name)) in items.iter().enumerate() {
            // The planner refuses two columns of one name.
            match name {
                Some(_) => shown.push(format!("{item} AS c{at}")),
                None if items[..at].iter().any(|(other, n)| other == item && n.is_none()) => {}
                None => shown.push((*item).to_owned()),
            }
        }
        shown.join(", ")
    })
}

fn tuples() -> impl Strategy<Value = String> {
    let beside = items(&["metric", "origin", "unit", "bound", "text"]);
    let extreme = select(vec!["MAX(timestamp)", "max(Timestamp) AS t", "MIN(timestamp)"]);
    let unions = select(vec!["UNION", "UNION ALL", "UNION DISTINCT"]);
    let tables = proptest::collection::vec(select(TABLES.to_vec()), 1..9);
    (extreme, beside, any::<bool>(), unions, tables).prop_map(
        |(extreme, beside, is_first, union, tables)| {
            let items = match is_first {
                true => format!("{extreme}, {beside}"),
                false => format!("{beside}, {extreme}"),
            };
            let select = |table: &str| format!("SELECT {items} FROM {table}");
            tables.into_iter().map(select).collect::<Vec<_>>().join(&format!(" {union} "))
        },
    )
}

fn topic() -> impl Strategy<Value = &'static str> {
    let mut topics = TOPICS.to_vec();
    topics.extend(["n09/no/body", "No Topic", "it''s", ""]);
    select(topics)
}

fn like() -> impl Strategy<Value = &'static str> {
    select(vec![
        "n01/%",
        "%",
        "n0_/mem/%",
        "n01/fs/a_b/%",
        "n01/fs/a\\_b/%",
        "n01/fs\\%",
        "n02/load%",
        "x",
        "%/total_bytes",
        "nobody/%",
        "",
        "n01_mem/%",
        "%_",
    ])
}

fn predicate() -> impl Strategy<Value = String> {
    prop_oneof![
        topic().prop_map(|topic| format!("topic = '{topic}'")),
        proptest::collection::vec(topic(), 1..5)
            .prop_map(|topics| format!("topic IN ('{}')", topics.join("', '"))),
        like().prop_map(|like| format!("topic LIKE '{like}'")),
    ]
}

fn of_rows() -> impl Strategy<Value = String> {
    let columns = items(&[
        "value",
        "topic",
        "node",
        "family",
        "instance",
        "metric",
        "unit",
        "kind",
        "origin",
        "age",
        "time",
        "checked_at",
        "publisher",
        "text",
        "bound",
    ]);
    let columns = prop_oneof![1 => Just("*".to_owned()), 4 => columns];
    (columns, predicate()).prop_map(|(c, p)| format!("SELECT {c} FROM latest WHERE {p}"))
}

/// Makes expressions over one row that are exact both ways.
fn number() -> impl Strategy<Value = &'static str> {
    select(vec![
        "value",
        "value * 2",
        "value + 1",
        "-value",
        "abs(value)",
        "age",
        "age - value",
        "CASE WHEN value > 3 THEN value ELSE 0 END",
        "CASE WHEN value > 3 THEN value END",
        "CASE WHEN value > 3 THEN 1 ELSE 0 END",
        "coalesce(value, 7)",
        "coalesce(value, age)",
        "nullif(value, 0)",
        "greatest(value, age)",
        "least(value, 2.5)",
        "round(value / 2.0)",
        "floor(value / 4)",
        "ceil(value / 4)",
        "round(value * 10, 1)",
        "value % 3",
        "value + 1 / 2",
        "7 / 2",
        "1",
        "1.5",
        "value / value",
    ])
}

fn condition() -> impl Strategy<Value = String> {
    let one = prop_oneof![
        4 => predicate(),
        1 => select(vec!["value > 3", "value <= 0", "value <> 2", "value BETWEEN -5 AND 5",
                         "value IN (1, 2, 3)", "value NOT IN (0, 1)", "value IS NULL",
                         "value IS NOT NULL", "3 / 2 < value", "value * 2 >= age", "age < 0.5",
                         "node = 'n01'", "node <> 'n01'", "node IN ('n02', 'n03')", "node LIKE 'n_1'",
                         "unit = 'bytes'", "unit LIKE 'bytes_s'", "unit LIKE '%s'",
                         "kind = 'gauge'", "kind <> 'gauge'", "true", "false"])
            .prop_map(str::to_owned),
        1 => like().prop_map(|like| format!("topic NOT LIKE '{like}'")),
    ];
    let joined = select(vec![" AND ", " OR ", " AND NOT "]);
    (proptest::collection::vec(one, 1..4), joined).prop_map(|(all, joined)| all.join(joined))
}

fn aggregate() -> impl Strategy<Value = String> {
    let function = prop_oneof![
        select(vec!["sum", "min", "max", "avg", "median", "count", "Max"])
            .prop_flat_map(|name| number().prop_map(move |x| format!("{name}({x})"))),
        (number(), select(vec!["0", "1", "0.25", "0.5", "0.75"]))
            .prop_map(|(x, share)| format!("quantile({x}, {share})")),
        Just("count(*)".to_owned()),
        select(vec![
            "round(avg(value), 1)",
            "coalesce(sum(value), 0)",
            "abs(count(*))",
            "round(count(value) / count(*), 2)"
        ])
        .prop_map(str::to_owned),
    ];
    let filter = proptest::option::weighted(0.2, condition());
    (function, filter).prop_map(|(function, filter)| match filter {
        Some(filter) if !function.contains("), ") && !function.contains("))") => {
            format!("{function} FILTER (WHERE {filter})")
        }
        _ => function,
    })
}

fn numbers() -> impl Strategy<Value = String> {
    let items = proptest::collection::vec((aggregate(), any::<bool>()), 1..4);
    (items, proptest::option::weighted(0.9, condition())).prop_map(|(items, condition)| {
        let mut shown: Vec<String> = Vec::new();
        for (at, (item, is_named)) in items.iter().enumerate() {
            match is_named {
                true => shown.push(format!("{item} AS c{at}")),
                false if shown.contains(item) => {}
                false => shown.push(item.clone()),
            }
        }
        let wanted = condition.map(|c| format!(" WHERE {c}")).unwrap_or_default();
        format!("SELECT {} FROM latest{wanted}", shown.join(", "))
    })
}

/// Removes the sign of zeros, which no user sees.
fn unsigned((names, rows): (Vec<String>, Vec<String>)) -> (Vec<String>, Vec<String>) {
    let cells = |row: &String| {
        let cells: Vec<&str> =
            row.split(" | ").map(|cell| if cell == "-0.0" { "0.0" } else { cell }).collect();
        cells.join(" | ")
    };
    (names, rows.iter().map(cells).collect())
}

/// Checks that the planner gives the answer of the point read. Returns false if the statement is not a point
/// read.
fn same(engine: &Engine, sql: &str) -> Result<bool, TestCaseError> {
    let Some(point) = engine.point(&Caller::Owner, sql) else { return Ok(false) };
    prop_assert_eq!(point.way, Way::Point);
    let planned = block_on(engine.query_planned(&Caller::Owner, sql, &Limits::default()));
    let planned = planned.map_err(|e| TestCaseError::fail(format!("{sql}: {e}")))?;
    prop_assert_eq!(unsigned(rows(&point)), unsigned(rows(&planned)), "{}", sql);
    Ok(true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn tuples_and_rows_are_alike_both_ways(
        world in world(&[Unit::BYTES, Unit::SECONDS, Unit::NONE]),
        tuples in tuples(), of_rows in proptest::collection::vec(of_rows(), 3),
    ) {
        let engine = world.engine(&ALIASES);
        let is_point = same(&engine, &tuples)?;
        // Only the history has the first sample.
        prop_assert_eq!(is_point, !tuples.contains("MIN"), "{}", tuples);
        for sql in of_rows {
            prop_assert!(same(&engine, &sql)?, "no point read: {}", sql);
        }
    }

    #[test]
    fn numbers_are_alike_both_ways(
        world in world(&[Unit::BYTES]), statements in proptest::collection::vec(numbers(), 4),
    ) {
        let engine = world.engine(&ALIASES);
        for sql in statements {
            same(&engine, &sql)?;
        }
    }

    #[test]
    fn numbers_of_several_units_are_alike_both_ways(
        world in world(&[Unit::BYTES, Unit::NONE]), statements in proptest::collection::vec(numbers(), 2),
    ) {
        let engine = world.engine(&ALIASES);
        for sql in statements {
            same(&engine, &sql)?;
        }
    }

    #[test]
    fn parameters_are_alike_both_ways(
        world in world(&[Unit::BYTES]), topics in proptest::collection::vec(topic(), 1..4),
        like in like(), number in -5i64..5, form in 0..6usize,
    ) {
        let engine = world.engine(&ALIASES);
        let texts = |texts: &[&str]| -> Vec<ArrayRef> {
            // Quotes are doubled in statements and not in values.
            let one = |t: &&str| Arc::new(StringArray::from(vec![t.replace("''", "'")])) as ArrayRef;
            texts.iter().map(one).collect()
        };
        let in_list = format!("topic IN ({})", vec!["?"; topics.len()].join(", "));
        let (sql, values): (String, Vec<ArrayRef>) = match form {
            0 => ("SELECT topic, value FROM latest WHERE topic = ?".to_owned(), texts(&topics[..1])),
            1 => (format!("SELECT * FROM latest WHERE {in_list}"), texts(&topics)),
            2 => ("SELECT topic, unit AS u FROM latest WHERE topic LIKE ?".to_owned(), texts(&[like])),
            3 => {
                let mut values = texts(&[like]);
                values.push(Arc::new(Int64Array::from(vec![number])));
                ("SELECT count(*), sum(value) FROM latest WHERE topic LIKE ? AND value > ?".to_owned(),
                 values)
            }
            4 => ("SELECT sum(value + $1), max(value) FROM latest WHERE value < $1".to_owned(),
                  vec![Arc::new(Float64Array::from(vec![number as f64]))]),
            _ => ("SELECT max(value * ?) FROM latest WHERE NOT value = -1".to_owned(),
                  vec![Arc::new(Int64Array::from(vec![number]))]),
        };
        let written = values.iter().fold(sql.clone(), |sql, value| {
            let text = skopos_query::arrow::util::display::array_value_to_string(value, 0);
            let text = text.expect("a value").replace('\'', "''");
            let text = if *value.data_type() == DataType::Utf8 { format!("'{text}'") } else { text };
            if sql.contains("$1") { sql.replace("$1", &text) } else { sql.replacen('?', &text, 1) }
        });
        let fields = values.iter().map(|v| Field::new("", v.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let values = RecordBatch::try_new(schema, values).expect("a row");
        let prepared = block_on(engine.prepare(&Caller::Owner, &sql)).expect("prepared");
        let planned = block_on(engine.query_planned(&Caller::Owner, &written, &Limits::default()));
        let planned = rows(&planned.map_err(|e| TestCaseError::fail(format!("{written}: {e}")))?).1;
        let found = block_on(engine.read_prepared(&Caller::Owner, &prepared, &values));
        let Some(found) = found.expect("it works") else { return Ok(()) };
        let (names, found) = unsigned(rows(&found));
        prop_assert_eq!(found, unsigned((Vec::new(), planned)).1, "{} is {}", sql, written);
        // The columns that were described before there were values are those of the answer.
        let described = prepared.schema().fields().iter();
        let described: Vec<String> = described.map(|f| format!("{}: {}", f.name(), f.data_type())).collect();
        prop_assert_eq!(names, described, "{}", sql);
    }
}

/// The statements that users write most are point reads; the properties above would not notice otherwise.
#[test]
fn documented_point_reads_are_point_reads() {
    let engine = World::default().with(TOPICS[0], Unit::BYTES, &[3.0, 5.0]).engine(&ALIASES);
    for (sql, way) in [
        (
            "SELECT MAX(timestamp), metric FROM capacity UNION SELECT MAX(timestamp), metric FROM nobodys",
            Way::Point,
        ),
        ("SELECT MAX(timestamp) AS at, metric, origin FROM N01_mem_available_bytes", Way::Point),
        ("SELECT * FROM latest WHERE topic = 'n01/mem/available_bytes'", Way::Point),
        ("SELECT value FROM latest WHERE topic IN ('a/b', 'n01/mem/available_bytes')", Way::Point),
        ("SELECT value FROM latest WHERE topic LIKE 'n01/mem\\_x/%'", Way::Point),
        ("SELECT sum(value), avg(value), min(value), max(value), count(*) FROM latest", Way::Point),
        (
            "SELECT quantile(value, 0.9) AS q, median(value) FROM latest WHERE node = 'n01'",
            Way::Point,
        ),
        ("SELECT sum(value * 2 + 1) FROM latest WHERE value > 3 / 2.0", Way::Point),
        ("SELECT count(*) FILTER (WHERE value > 4) FROM latest", Way::Point),
        ("SELECT sum(CASE WHEN value > 4 THEN 1 ELSE 0 END) FROM latest", Way::Planned),
        ("SELECT sum(value + 1 / 2) FROM latest", Way::Planned),
        ("SELECT round(count(value) / count(*), 2) FROM latest", Way::Planned),
        ("SELECT MIN(timestamp), metric FROM capacity", Way::Planned),
    ] {
        assert_eq!(ask(&engine, sql).way, way, "{sql}");
    }
}

#[test]
fn sums_that_may_overflow_on_the_way_are_left_to_the_planner() {
    let world = |values: &[f64]| {
        let all = values.iter().enumerate();
        let add = |world: World, (at, value): (usize, &f64)| {
            world.with(&format!("n01/huge/value_{at}"), Unit::NONE, &[*value])
        };
        all.fold(World::default(), add).engine(&[])
    };
    let sql = "SELECT sum(value) FROM latest WHERE topic LIKE 'n01/huge/%'";
    for (values, way) in [([1e308, 1e308, -1e308], Way::Planned), ([1.0, 2.0, 3.0], Way::Point)] {
        assert_eq!(ask(&world(&values), sql).way, way, "{values:?}");
    }
}
