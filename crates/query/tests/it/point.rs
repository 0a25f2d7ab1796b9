//! Point reads and the planner answer alike: over statements and worlds that nobody wrote.

use proptest::prelude::*;
use skopos_model::Unit;
use skopos_query::{Engine, Limits, Way};

use crate::world::{World, rows};

const TOPICS: [&str; 8] = [
    "n01/mem/available_bytes",
    "n02/mem/available_bytes",
    "n01/mem/total_bytes",
    "n01/fs/a/available_bytes",
    "n01/fs/a_b/available_bytes",
    "n02/load/load1",
    "n02/load/load5",
    "x",
];

fn world() -> impl Strategy<Value = World> {
    let value = prop_oneof![
        4 => (-1000i32..1000).prop_map(f64::from),
        1 => Just(f64::NAN),
        1 => Just(0.0),
    ];
    let vertex = proptest::collection::vec(value, 0..4);
    proptest::collection::vec(vertex, TOPICS.len()).prop_map(|vertices| {
        let named = TOPICS.iter().zip(vertices);
        named.fold(World::default(), |world, (topic, values)| {
            world.with(topic, Unit::BYTES, &values)
        })
    })
}

fn topic() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(TOPICS.to_vec())
}

fn tuples() -> impl Strategy<Value = String> {
    let items = proptest::sample::select(vec![
        "MAX(timestamp), metric",
        "metric, max(timestamp) AS t",
        "MAX(timestamp), metric, origin",
        "MAX(timestamp), unit",
    ]);
    let unions = proptest::sample::select(vec!["UNION", "UNION ALL"]);
    // Names with a slash are the topics' own; the one without is not a table by itself.
    let tables = proptest::collection::vec(0..TOPICS.len() - 1, 1..9);
    (items, unions, tables).prop_map(|(items, union, tables)| {
        let select = |at: usize| format!("SELECT {items} FROM \"{}\"", TOPICS[at]);
        tables.into_iter().map(select).collect::<Vec<_>>().join(&format!(" {union} "))
    })
}

fn predicate() -> impl Strategy<Value = String> {
    let like = proptest::sample::select(vec![
        "n01/%",
        "%",
        "n0_/mem/%",
        "n01/fs/a_b/%",
        "n02/load%",
        "x",
        "%/total_bytes",
    ]);
    prop_oneof![
        topic().prop_map(|topic| format!("topic = '{topic}'")),
        proptest::collection::vec(topic(), 1..4)
            .prop_map(|topics| format!("topic IN ('{}')", topics.join("', '"))),
        like.prop_map(|like| format!("topic LIKE '{like}'")),
    ]
}

fn statement() -> impl Strategy<Value = String> {
    let columns = proptest::sample::select(vec![
        "*",
        "value",
        "topic, value AS v",
        "node, family, instance, metric",
        "unit, kind, origin, age",
        "time, checked_at, publisher, text, bound",
    ]);
    let numbers = proptest::sample::select(vec![
        "sum(value)",
        "count(*), max(value)",
        "min(value), avg(value) AS mean",
        "count(value)",
        "median(value)",
        "quantile(value, 0.25) AS q",
    ]);
    prop_oneof![
        2 => tuples(),
        1 => (columns, predicate()).prop_map(|(c, p)| format!("SELECT {c} FROM latest WHERE {p}")),
        1 => (numbers, predicate()).prop_map(|(n, p)| format!("SELECT {n} FROM latest WHERE {p}")),
    ]
}

/// Sums of small integers and what is made of two of them are exact either way.
fn same(engine: &Engine, sql: &str) -> Result<(), TestCaseError> {
    let Some(point) = engine.point(sql) else {
        return Err(TestCaseError::fail(format!("no point read: {sql}")));
    };
    prop_assert_eq!(point.way, Way::Point);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let planned =
        runtime.expect("a runtime").block_on(engine.query_planned(sql, &Limits::default()));
    let planned = planned.map_err(|e| TestCaseError::fail(format!("{sql}: {e}")))?;
    prop_assert_eq!(rows(&point), rows(&planned), "{}", sql);
    Ok(())
}

proptest! {
    #[test]
    fn both_ways_answer_alike(world in world(), statements in proptest::collection::vec(statement(), 4)) {
        let engine = world.engine(&[]);
        for sql in statements {
            same(&engine, &sql)?;
        }
    }
}
