//! Generated statements over sealed samples, asked of a hub and of DuckDB.

use std::path::Path;
use std::process::Command;

use skopos_model::{Kind, Sample, Timestamp, Topic, Unit, Value, ValueType};
use skopos_store::history::{Samples, Sealer, Series};
use tempfile::TempDir;

use crate::flight::{free_port, python};
use crate::support::Running;

/// The statements of a short run. A long one has more: `make soak` sets `SKOPOS_STATEMENTS`.
const STATEMENTS: u64 = 400;

/// Numbers that engines disagree about: NULL is the unknown value.
const VALUES: [Option<f64>; 16] = [
    Some(0.0),
    Some(-0.0),
    Some(1.0),
    Some(-1.0),
    None,
    Some(0.5),
    Some(3.0),
    Some(1e308),
    Some(7.0),
    Some(1.0),
    Some(-1e308),
    Some(1e-300),
    Some(9_007_199_254_740_993.0),
    Some(100.0),
    Some(3.0),
    Some(0.1),
];

/// Seals samples of three nodes with three topics each, in three parts. Times of different topics are often equal.
fn fill(folder: &Path) {
    let begin = skopos_shm::now().as_nanos() / 3_600_000_000_000 * 3_600_000_000_000;
    let begin = begin - 6 * 3_600_000_000_000;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % most
    };
    for generation in 1..=3 {
        let mut sealer = Sealer::new(folder, generation).expect("a part");
        for node in ["x1", "x2", "x3"] {
            for metric in ["a", "b", "c"] {
                let topic = Topic::new(&format!("{node}/app/{metric}")).expect("a topic");
                let (unit, kind, value_type) = (Unit::NONE, Kind::Gauge, ValueType::F64);
                let since = Timestamp::default();
                let mut samples = Samples::default();
                let mut at = begin + generation as i64 * 1_800_000_000_000;
                for _ in 0..30 + draw(20) {
                    // Whole seconds, so that joins on the time find something.
                    at += 1_000_000_000 * (1 + draw(40) as i64);
                    let time = Timestamp::from_nanos(at);
                    samples.push(&match VALUES[draw(VALUES.len() as u64) as usize] {
                        Some(value) => Sample::measured(time, Value::F64(value)),
                        None => Sample::unknown(time, value_type, "a test"),
                    });
                }
                let series = Series { topic, unit, kind, value_type, since };
                sealer.push(series, samples).expect("pushed");
            }
        }
        sealer.finish().expect("sealed");
    }
}

#[test]
fn generated_statements_have_the_answers_of_duckdb() {
    let Some(python) = python() else {
        println!("skipped: no duckdb; `scripts/setup test` gets it where there is PyPI");
        return;
    };
    let history = TempDir::new().expect("a folder");
    fill(history.path());
    let (folder, at) =
        (history.path().to_str().expect("text"), format!("127.0.0.1:{}", free_port()));
    let up = Running::start_as("up", &["--history", folder, "--http", &at]);
    let number = |name: &str, usual: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual).to_string()
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/differential.py");
    let (count, seed) = (number("SKOPOS_STATEMENTS", STATEMENTS), number("SKOPOS_SEED", 1));
    let ran = Command::new(python)
        .args([script, &format!("http://{at}"), folder, "--count", &count, "--seed", &seed])
        .output()
        .expect("it starts");
    drop(up);
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{told}\n{}", String::from_utf8_lossy(&ran.stderr));
    println!("{}", told.lines().last().unwrap_or_default());
}
