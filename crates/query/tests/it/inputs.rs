//! Inputs of statements.

use skopos_access::Caller;
use skopos_model::{Timestamp, Unit};
use skopos_query::{Engine, Inputs};

use crate::world::{NOW, World};

fn inputs(engine: &Engine, sql: &str) -> Inputs {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(engine.inputs(&Caller::Owner, sql)).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// Returns an engine over two topics, with samples of these ages in seconds.
fn world(memory: i64, load: i64) -> Engine {
    let mut world = World::default().with("n01/mem/available_bytes", Unit::BYTES, &[1.0]).with(
        "n01/load/load_1m",
        Unit::NONE,
        &[1.0],
    );
    for (vertex, age) in world.vertices.iter_mut().zip([memory, load]) {
        vertex.samples[0].time = Timestamp::from_nanos(NOW.as_nanos() - age * 1_000_000_000);
    }
    world.engine(&[("alias", "n01/mem/available_bytes")])
}

#[test]
fn a_fingerprint_changes_with_its_inputs_alone() {
    let before = world(9, 9);
    for (sql, sees_memory, sees_load) in [
        ("SELECT value FROM latest WHERE topic = 'n01/mem/available_bytes'", true, false),
        ("SELECT topic, value FROM latest WHERE topic LIKE 'n01/load/%'", false, true),
        ("SELECT max(value) FROM latest WHERE topic LIKE 'n01/load/%'", false, true),
        ("SELECT MAX(timestamp), metric FROM alias", true, false),
        ("SELECT count(*) FROM latest", true, true),
        ("SELECT value FROM latest WHERE topic LIKE 'n01/mem/%' ORDER BY value", true, false),
        ("SELECT count(*) FROM samples WHERE topic = 'n01/load/load_1m'", false, true),
        ("SELECT count(*) FROM \"n01/load/load_1m\"", false, true),
        ("SELECT count(*) FROM latest WHERE metric = 'load_1m'", false, true),
        ("SELECT max(value) FROM latest WHERE topic LIKE '%/load_1m'", false, true),
        ("SELECT topic FROM latest WHERE topic LIKE '%/load_1m' ORDER BY topic", false, true),
        ("SELECT value FROM latest WHERE topic LIKE '%/available_bytes'", true, false),
        ("SELECT node, avg(value) FROM latest WHERE family = 'mem' GROUP BY node", true, false),
        ("SELECT count(*) FROM samples WHERE metric IN ('load_1m', 'load_5m')", false, true),
        ("SELECT avg(available_bytes) FROM mem", true, false),
        ("SELECT (SELECT max(metric) FROM alias) AS m, count(*) FROM n01_load_load_1m", true, true),
        ("SELECT node, alive FROM nodes", false, false),
        ("SELECT topic FROM topics", false, false),
        ("SELECT 1", false, false),
    ] {
        let print = |engine: &Engine| engine.fingerprint(&inputs(engine, sql), &|_| true);
        let now = print(&before);
        assert_eq!(print(&world(9, 9)), now, "{sql}: the same again");
        assert_eq!(print(&world(5, 9)) != now, sees_memory, "{sql}: memory");
        assert_eq!(print(&world(9, 5)) != now, sees_load, "{sql}: load");
        assert!(!inputs(&before, sql).is_timed(), "{sql}");
    }
    let more = World::default().with("n02/load/load_1m", Unit::NONE, &[1.0]).engine(&[]);
    let print = |engine: &Engine| {
        engine.fingerprint(&inputs(engine, "SELECT topic FROM topics"), &|_| true)
    };
    assert_ne!(print(&before), print(&more));
}

#[test]
fn answers_that_change_with_the_clock_are_timed() {
    let engine = world(9, 9);
    for sql in [
        "SELECT topic, age FROM latest WHERE topic = 'n01/load/load_1m'",
        "SELECT * FROM latest WHERE topic LIKE 'n01/%'",
        "SELECT max(age) FROM latest",
        "SELECT node, seen_at FROM nodes",
        "SELECT now()",
        "SELECT count(*) FROM samples WHERE time > now() - INTERVAL '1 minute'",
        "SELECT count(*) FROM mem WHERE checked_at IS NULL",
        "SELECT topic, value FROM latest_at('1h')",
    ] {
        assert!(inputs(&engine, sql).is_timed(), "{sql}");
    }
    let fixed = "SELECT topic, value FROM latest_at('2026-11-22T09:00:00Z')";
    assert!(!inputs(&engine, fixed).is_timed());
}
