//! Measures the cost of a change of an input: `cargo run --release -p skopos-eval --example eval_cost`
//!
//! 640 rows change one after the other; after each change the example reads the value, as the graph does.

use std::hint::black_box;
use std::time::{Duration, Instant};

use skopos_eval::{Evaluator, Statement};
use skopos_model::{Kind, SplitMix64, Timestamp, Topic, Unit};

const ROWS: u32 = 640;

/// Number of changes: so many that the cost of the clock does not matter.
const CHANGES: u32 = 2_000_000;

/// Number of runs, of which the best counts: other load only adds time.
const RUNS: u32 = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let latest = "FROM latest WHERE topic LIKE '%/fs/%/available_bytes'";
    let samples = "FROM samples WHERE topic = 'n01/fs/d0/available_bytes' AND time > now() - \
                   INTERVAL '640 s'";
    println!(
        "{ROWS} rows or samples; nanoseconds for a change, and for a change with reading the value"
    );
    for (selected, from) in [
        ("count(*)", latest),
        ("sum(value)", latest),
        ("avg(value)", latest),
        ("min(value)", latest),
        ("quantile(value, 0.95)", latest),
        ("sum(rate(value))", latest),
        ("max(value) - min(value)", latest),
        ("sum(value) FILTER (WHERE value > 500) / sum(value)", latest),
        ("sum(value)", samples),
        ("min(value)", samples),
        ("quantile(value, 0.95)", samples),
        ("rate(value)", samples),
        ("ema(value, INTERVAL '60 s')", samples),
    ] {
        let statement = Statement::new(&format!("SELECT {selected} {from}"))?;
        let (change, value) = cost(&statement)?;
        let table = from.split(' ').nth(1).unwrap_or_default();
        println!("{selected:52} {table:8} {change:7.1} {value:7.1}");
    }
    Ok(())
}

/// Returns nanoseconds for a change, and for a change with reading the value.
fn cost(statement: &Statement) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let mut evaluator = Evaluator::new(statement);
    for key in 0..ROWS {
        let topic = Topic::new(&format!("n01/fs/d{key}/available_bytes"))?;
        evaluator.row_added(key, &topic, Unit::BYTES, Kind::Gauge);
    }
    let is_window = matches!(statement.table(), skopos_eval::Table::Samples(_));
    // Each run takes the same numbers.
    let mut random = SplitMix64::new(1);
    let mut now = Timestamp::from_nanos(0);
    let mut step = |evaluator: &mut Evaluator, at: u32| {
        now = now.saturating_add(Duration::from_secs(1));
        let value = random.below(1024) as f64;
        evaluator.row_changed(if is_window { 0 } else { at % ROWS }, now, Some(value));
        now
    };
    for at in 0..ROWS {
        step(&mut evaluator, at);
    }
    let (mut change, mut both) = (f64::MAX, f64::MAX);
    for _ in 0..RUNS {
        let begin = Instant::now();
        for at in 0..CHANGES {
            step(&mut evaluator, at);
        }
        change = change.min(begin.elapsed().as_nanos() as f64 / f64::from(CHANGES));
        let begin = Instant::now();
        for at in 0..CHANGES / 10 {
            let now = step(&mut evaluator, at);
            black_box(evaluator.value(0, now)?);
        }
        both = both.min(begin.elapsed().as_nanos() as f64 / f64::from(CHANGES / 10));
    }
    Ok((change, both))
}
