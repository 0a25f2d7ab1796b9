//! Any text as a statement. An accepted statement runs over rows that appear and change: its numbers are
//! finite, its patterns match each topic that it reads, and the evaluation step by step gives the same
//! result as an evaluation from scratch.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use skopos_eval::{Evaluator, Row, Statement, Table};
use skopos_model::{Kind, Timestamp, Topic, Unit};

const TOPICS: [&str; 4] =
    ["n01/fs/nvme0/available_bytes", "n01/load/load1", "a/b", "n02/block/sda/read_bytes_total"];

const VALUES: [Option<f64>; 6] = [Some(1.5), None, Some(-3.0), Some(1e300), Some(0.0), Some(1e-300)];

fuzz_target!(|sql: &str| {
    let statement = match Statement::new(sql) {
        Ok(statement) => statement,
        Err(error) => {
            let lines = sql.matches('\n').count() as u64 + 1;
            assert!(error.position().is_none_or(|at| at.line >= 1 && at.line <= lines), "{error}");
            let _ = error.hint();
            return;
        }
    };
    let topics = TOPICS.map(|topic| Topic::new(topic).expect("topic"));
    let mut evaluator = Evaluator::new(&statement);
    let mut now = Timestamp::from_nanos(1_000_000_000);
    for (key, topic) in topics.iter().enumerate() {
        if evaluator.row_added(key as u32, topic, Unit::BYTES, Kind::Gauge) {
            assert!(statement.matches(topic));
            assert!(statement.topics().iter().any(|pattern| pattern.matches(topic)), "{topic}");
        }
    }
    let mut last = [(Timestamp::default(), None); TOPICS.len()];
    for (at, value) in VALUES.iter().cycle().take(4 * VALUES.len()).enumerate() {
        now = now.saturating_add(Duration::from_millis(700));
        let key = at % TOPICS.len();
        evaluator.row_changed(key as u32, now, *value);
        last[key] = (now, *value);
        for output in 0..statement.outputs().len() {
            if let Ok(number) = evaluator.value(output, now) {
                assert!(number.is_finite());
            }
        }
    }
    // Rates and means need earlier rows, which an evaluation from scratch does not have.
    let is_stateless = statement.table() == Table::Latest
        && !statement.is_timed()
        && !["rate", "ema"].iter().any(|name| sql.to_lowercase().contains(name));
    if is_stateless {
        let rows = topics.iter().zip(last).map(|(topic, (time, value))| {
            let (unit, kind) = (Unit::BYTES, Kind::Gauge);
            Row { topic, unit, kind, time, checked_at: time, value }
        });
        for (output, expected) in statement.once(now, rows).into_iter().enumerate() {
            assert_eq!(evaluator.value(output, now).ok(), expected.ok());
        }
    }
});
