//! Aggregation by run finds the groups that DataFusion finds row by row.

use skopos_model::Unit;
use skopos_query::Engine;

use crate::world::{World, ask, rows};

/// More groups than the first step holds.
const MANY: usize = 70_000;

/// Aggregates of whole numbers: their order does not change the result.
const FUNCTIONS: &str = "count(*), count(value), sum(value), avg(value), min(value), max(time)";

fn engine() -> Engine {
    let some: Vec<f64> =
        (0..500).map(|n| if n % 7 == 0 { f64::NAN } else { f64::from(n % 31) }).collect();
    let many: Vec<f64> = (0..MANY).map(|n| n as f64).collect();
    let world = World::default()
        .with("n1/mem/free_bytes", Unit::BYTES, &some)
        .with("n1/mem/total_bytes", Unit::BYTES, &some[..90])
        .with("n2/mem/free_bytes", Unit::BYTES, &some[..7])
        .with("n2/app/depth", Unit::NONE, &many);
    world.engine(&[])
}

fn is_by_runs(engine: &Engine, sql: &str) -> bool {
    rows(&ask(engine, &format!("EXPLAIN {sql}"))).1.join("\n").contains("RunsAggregateExec")
}

#[test]
fn groups_are_the_same_by_run_and_by_row() {
    let engine = engine();
    for (by, is_of_runs) in [
        ("node", true),
        ("topic", true),
        ("node, time_bucket('1m', time)", true),
        ("family, metric, time_bucket('7s', time)", true),
        ("time", true),
        ("node, value", false),
    ] {
        for condition in ["", "WHERE metric <> 'depth' AND value > 3", "WHERE topic LIKE 'n1/%'"] {
            let sql = format!("SELECT {by}, {FUNCTIONS} FROM samples {condition} GROUP BY {by}");
            assert_eq!(is_by_runs(&engine, &sql), is_of_runs, "{sql}");
            // One more key, which is always the same, of a column that does not come in runs.
            let by_row = format!("{sql}, abs(coalesce(value, 0)) < -1");
            assert!(!is_by_runs(&engine, &by_row), "{by_row}");
            let [mut one, mut other] = [&sql, &by_row].map(|sql| rows(&ask(&engine, sql)).1);
            one.sort();
            other.sort();
            assert!(!one.is_empty(), "{sql}");
            assert!(one == other, "{sql}: {} and {} rows", one.len(), other.len());
        }
    }
}
