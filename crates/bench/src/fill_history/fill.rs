//! Makes history that never was, for benchmarks: as agents of many nodes would have left it.

use std::path::Path;

use skopos_model::{Kind, Timestamp, Topic, Unit, ValueType};
use skopos_store::history::{Samples, Sealer, Series};

use skopos_term::Failure;

/// Samples of one part.
const PART_SAMPLES: u64 = 8_000_000;

/// Time between two samples of a topic, and by how much it differs from one to the next, in
/// nanoseconds.
const INTERVAL: i64 = 1_000_000_000;
const JITTER: u64 = 200_000;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) samples: u64,
    pub(crate) nodes: u64,
    /// Of each node.
    pub(crate) topics: u64,
}

/// Fills a folder: a sample a second of each topic of each node, the last one at `end`. Returns how
/// many there are, which is a multiple of the number of topics.
///
/// # Errors
/// It cannot be written.
pub(crate) fn fill(folder: &Path, shape: Shape, end: Timestamp) -> Result<u64, Failure> {
    let failed =
        |e: skopos_store::history::Error| Failure::new("history cannot be written").because(&e);
    std::fs::create_dir_all(folder)
        .map_err(|e| Failure::new(format!("{} cannot be made", folder.display())).because(&e))?;
    let series_count = (shape.nodes * shape.topics).max(1);
    let rows = shape.samples / series_count;
    let window = (PART_SAMPLES / series_count).max(1);
    let begin = end.as_nanos() - INTERVAL * (rows as i64 - 1);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        // Marsaglia's xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut values = vec![1000i64; series_count as usize];
    for (part, from) in (0..rows).step_by(window as usize).enumerate() {
        let mut sealer = Sealer::new(folder, part as u64 + 1).map_err(failed)?;
        for node in 0..shape.nodes {
            // The facts of one tick have one time.
            let ticks: Vec<i64> = (from..rows.min(from + window))
                .map(|row| begin + INTERVAL * row as i64 + (next() % JITTER) as i64)
                .collect();
            for topic in 0..shape.topics {
                let value = &mut values[(node * shape.topics + topic) as usize];
                let mut samples = Samples::default();
                for tick in &ticks {
                    *value += (next() % 201) as i64 - 100;
                    samples.push_measured(Timestamp::from_nanos(*tick), *value as f64 / 100.0);
                }
                sealer.push(series(node, topic)?, samples).map_err(failed)?;
            }
        }
        sealer.finish().map_err(failed)?;
    }
    Ok(rows * series_count)
}

fn series(node: u64, topic: u64) -> Result<Series, Failure> {
    let topic = Topic::new(&format!("n{node:04}/bench/metric_{topic:03}"))?;
    let (unit, kind, value_type) = (Unit::NONE, Kind::Gauge, ValueType::F64);
    Ok(Series { topic, unit, kind, value_type, since: Timestamp::default() })
}
