//! Statements as vertices of a graph: how inputs join, change and leave, when a statement runs, and
//! its value.

use skopos_model::{Kind, Scalar, Timestamp, Unit, ValueType};
use skopos_score::insight::sql::SqlInsight;
use skopos_score::{Graph, InsightSpec, Unknown, VertexId};

use crate::graph::no_allocation::allocations;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

fn insight(graph: &mut Graph, topic: &str, sql: &str) -> VertexId {
    let (insight, inputs, unit) = SqlInsight::new(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let spec = InsightSpec {
        topic: topic.parse().expect("topic"),
        unit: unit.unwrap_or(Unit::NONE),
        kind: Kind::Gauge,
        value_type: ValueType::F64,
        inputs,
        name: topic.into(),
        formula: sql.into(),
    };
    graph.add_insight(spec, Box::new(insight)).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn fact(graph: &mut Graph, topic: &str, unit: &str, kind: Kind) -> VertexId {
    let unit = Unit::new(unit).expect("unit");
    graph.add_fact(topic.parse().expect("topic"), unit, kind).expect("new fact")
}

fn set(graph: &mut Graph, id: VertexId, seconds: i64, value: f64) {
    graph.set(id, at(seconds), Scalar::F64(value)).expect("fact");
}

fn outcome(graph: &mut Graph, id: VertexId, seconds: i64) -> String {
    graph.run(at(seconds), &mut |_| {});
    match graph.view(id).expect("vertex").outcome() {
        Some(Ok(value)) => value.to_string(),
        Some(Err(unknown)) => format!("? {unknown}"),
        None => "nothing yet".to_owned(),
    }
}

#[test]
fn space_left_on_all_nvme() {
    let mut graph = Graph::default();
    let space = insight(
        &mut graph,
        "n01/insight/nvme_available_bytes",
        "SELECT sum(value) FROM latest WHERE topic LIKE '%/fs/nvme%/available_bytes'",
    );
    assert_eq!(graph.view(space).expect("vertex").unit(), Unit::BYTES);
    graph.set_missing("fs", "skipped: no file system");
    let none = outcome(&mut graph, space, 1);
    assert_eq!(
        none,
        "? no topic matches: topic LIKE '%/fs/nvme%/available_bytes': fs: skipped: skipped: no file \
         system"
    );

    let disks = ["nvme0n1", "nvme1n1", "sda"].map(|disk| {
        fact(&mut graph, &format!("n01/fs/{disk}/available_bytes"), "bytes", Kind::Gauge)
    });
    assert_eq!(outcome(&mut graph, space, 2), "? n01/fs/nvme0n1/available_bytes has no value yet");
    for (disk, bytes) in disks.iter().zip([100.0, 20.0, 7.0]) {
        set(&mut graph, *disk, 3, bytes);
    }
    assert_eq!(outcome(&mut graph, space, 3), "120");
    set(&mut graph, disks[0], 4, 50.0);
    assert_eq!(outcome(&mut graph, space, 4), "70");
    // An unknown value is left out, and so is a removed vertex.
    graph.set_unknown(disks[1], at(5), Unknown::new("the mount hangs")).expect("fact");
    assert_eq!(outcome(&mut graph, space, 5), "50");
    graph.remove(disks[0]).expect("there");
    let gone = outcome(&mut graph, space, 6);
    assert_eq!(gone, "? n01/fs/nvme1n1/available_bytes is unknown: the mount hangs");
}

#[test]
fn a_count_of_nothing_is_zero_though_its_inputs_are_missing() {
    let mut graph = Graph::default();
    let count = insight(
        &mut graph,
        "n01/insight/hot",
        "SELECT count(*) FROM latest WHERE topic LIKE '%/hwmon/%/temperature' AND value > 80",
    );
    assert_eq!(outcome(&mut graph, count, 1), "0");
    let chip = fact(&mut graph, "n01/hwmon/a/temperature", "celsius", Kind::Gauge);
    set(&mut graph, chip, 2, 90.0);
    assert_eq!(outcome(&mut graph, count, 2), "1");
    set(&mut graph, chip, 3, 70.0);
    assert_eq!(outcome(&mut graph, count, 3), "0");
    // It is as old as its oldest input nevertheless.
    assert_eq!(graph.view(count).expect("vertex").checked_at(), at(3));
}

#[test]
fn different_units_are_refused_by_name() {
    let mut graph = Graph::default();
    let sum = insight(
        &mut graph,
        "n01/insight/sum",
        "SELECT sum(value) FROM latest WHERE topic LIKE '%/x/%'",
    );
    for (topic, unit) in [("n01/x/a", "bytes"), ("n01/x/b", "seconds")] {
        let id = fact(&mut graph, topic, unit, Kind::Gauge);
        set(&mut graph, id, 1, 1.0);
    }
    assert_eq!(
        outcome(&mut graph, sum, 1),
        "? topics of different units: n01/x/a is in bytes, n01/x/b in seconds"
    );
}

#[test]
fn a_unit_other_than_the_declared_one_is_reported() {
    let mut graph = Graph::default();
    let sql = "SELECT max(value) FROM latest WHERE topic LIKE '%/available_bytes'";
    let id = insight(&mut graph, "n01/insight/max", sql);
    let odd = fact(&mut graph, "n01/mine/available_bytes", "seconds", Kind::Gauge);
    set(&mut graph, odd, 1, 1.0);
    assert_eq!(
        outcome(&mut graph, id, 1),
        "? its values are in seconds, but its declared unit is bytes"
    );

    let (_, _, unit) =
        SqlInsight::new("SELECT max(value) FROM latest WHERE topic = 'n01/my/own'").expect("sql");
    assert_eq!(unit, None);
}

#[test]
fn rates_are_those_of_polls_not_of_changes() {
    let mut graph = Graph::default();
    let reads = fact(&mut graph, "n01/block/sda/read_bytes_total", "bytes", Kind::Counter);
    set(&mut graph, reads, 1, 1000.0);
    set(&mut graph, reads, 2, 1500.0);
    let sql = "SELECT sum(rate(value)) FROM latest WHERE topic LIKE '%/read_bytes_total'";
    // A vertex that joins after two polls brings its rate.
    let rate = insight(&mut graph, "n01/insight/reads", sql);
    assert_eq!(outcome(&mut graph, rate, 2), "500");
    for second in 3..10 {
        set(&mut graph, reads, second, 1500.0);
        assert_eq!(outcome(&mut graph, rate, second), "0");
    }
    // After seven polls without a change, one second with 90.
    set(&mut graph, reads, 10, 1590.0);
    assert_eq!(outcome(&mut graph, rate, 10), "90");
    // The source restarted.
    set(&mut graph, reads, 11, 5.0);
    assert!(outcome(&mut graph, rate, 11).starts_with("? no rate yet"));
    set(&mut graph, reads, 12, 25.0);
    assert_eq!(outcome(&mut graph, rate, 12), "20");
}

#[test]
fn a_window_empties_with_time_alone() {
    let mut graph = Graph::default();
    let load = fact(&mut graph, "n01/load/load1", "", Kind::Gauge);
    let sql = "SELECT max(value) FROM samples WHERE topic = 'n01/load/load1' AND time > now() - INTERVAL '5 s'";
    let peak = insight(&mut graph, "n01/insight/peak", sql);
    for (second, value) in [(10, 4.0), (11, 9.0), (12, 3.0)] {
        set(&mut graph, load, second, value);
        graph.run(at(second), &mut |_| {});
    }
    assert_eq!(outcome(&mut graph, peak, 12), "9");
    assert_eq!(outcome(&mut graph, peak, 16), "3");
    assert_eq!(outcome(&mut graph, peak, 20), "? no sample of n01/load/load1 in the window");
}

#[test]
fn ages_count_from_the_last_poll() {
    let mut graph = Graph::default();
    let load = fact(&mut graph, "n01/load/load1", "", Kind::Gauge);
    let age = insight(
        &mut graph,
        "n01/insight/age",
        "SELECT max(age) FROM latest WHERE topic LIKE 'n01/load/%'",
    );
    set(&mut graph, load, 10, 4.0);
    assert_eq!(outcome(&mut graph, age, 12), "2");
    set(&mut graph, load, 14, 4.0);
    assert_eq!(outcome(&mut graph, age, 15), "1");
}

#[test]
fn changes_of_known_topics_allocate_nothing() {
    let mut graph = Graph::default();
    let facts: Vec<VertexId> = (0..100)
        .map(|n| fact(&mut graph, &format!("n01/fs/d{n}/available_bytes"), "bytes", Kind::Gauge))
        .collect();
    let read = "FROM latest WHERE topic LIKE '%/available_bytes'";
    let window =
        "FROM samples WHERE topic = 'n01/fs/d7/available_bytes' AND time > now() - INTERVAL '50 s'";
    for (name, sql) in [
        ("sum", format!("SELECT sum(value) {read}")),
        ("min", format!("SELECT min(value) / max(value) {read} AND value > 3")),
        ("quantile", format!("SELECT quantile(value, 0.9) {read}")),
        ("rate", format!("SELECT avg(rate(value)) + max(ema(rate(value), INTERVAL '9 s')) {read}")),
        ("age", format!("SELECT max(age) {read}")),
        ("window", format!("SELECT median(value) + ema(value, INTERVAL '9 s') {window}")),
    ] {
        insight(&mut graph, &format!("n01/insight/{name}"), &sql);
    }
    let mut changed = 0;
    for second in 1..200 {
        let before = allocations();
        for (place, &fact) in facts.iter().enumerate() {
            set(&mut graph, fact, second, ((second * (place as i64 + 7)) % 211) as f64 + 1.0);
        }
        changed += graph.run(at(second), &mut |_| {}).changed;
        let allocated = allocations() - before;
        // The first rounds allocate, the last of them for the window. A reason for an unknown value
        // is a text, so the values are chosen so that the value is always known.
        assert!(second < 70 || allocated == 0, "{allocated} allocations in second {second}");
    }
    assert!(changed > 900, "only {changed} values changed");
}

#[test]
fn a_statement_without_a_single_number_is_refused_with_its_position() {
    let check = |sql: &str, expected: &str| match SqlInsight::new(sql) {
        Ok(_) => panic!("{sql} was taken"),
        Err(error) => assert_eq!(error.to_string(), expected),
    };
    check(
        "SELECT sum(value), max(value) FROM latest",
        "line 1, column 20: a second number, but an insight has only one",
    );
    check(
        "SELECT sum(value) FROM latest GROUP BY node",
        "line 1, column 31: `GROUP BY` is not supported in an insight",
    );
}
