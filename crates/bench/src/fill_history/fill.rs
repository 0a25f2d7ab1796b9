//! Writes a made-up history for benchmarks, in the form in which agents of many nodes write it.

use std::path::Path;

use skopos_model::{Kind, SplitMix64, Timestamp, Topic, Unit, ValueType};
use skopos_store::history::{Samples, Sealer, Series};

use skopos_term::Failure;

/// Seed of the values: every run writes the same history.
const SEED: u64 = 1;

/// Samples of one part.
const PART_SAMPLES: u64 = 8_000_000;

/// Time between two samples of a topic, and its greatest variation, in nanoseconds.
const INTERVAL: i64 = 1_000_000_000;
const JITTER: u64 = 200_000;

/// The size of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) samples: u64,
    pub(crate) nodes: u64,
    /// Number of topics of each node.
    pub(crate) topics: u64,
}

/// Fills a folder: a sample a second of each topic of each node, the last one at `end`. Returns the
/// number of samples, a multiple of the number of topics.
///
/// # Errors
/// The folder cannot be written.
pub(crate) fn fill(folder: &Path, shape: Shape, end: Timestamp) -> Result<u64, Failure> {
    let failed =
        |e: skopos_store::history::Error| Failure::new("history cannot be written").because(&e);
    std::fs::create_dir_all(folder)
        .map_err(|e| Failure::new(format!("{} cannot be made", folder.display())).because(&e))?;
    let series_count = (shape.nodes * shape.topics).max(1);
    let rows = shape.samples / series_count;
    let window = (PART_SAMPLES / series_count).max(1);
    let begin = end.as_nanos() - INTERVAL * (rows as i64 - 1);
    let mut random = SplitMix64::new(SEED);
    let mut values = vec![1000i64; series_count as usize];
    for (part, from) in (0..rows).step_by(window as usize).enumerate() {
        let mut sealer = Sealer::new(folder, part as u64 + 1).map_err(failed)?;
        for node in 0..shape.nodes {
            // The facts of one tick have one time.
            let ticks: Vec<i64> = (from..rows.min(from + window))
                .map(|row| begin + INTERVAL * row as i64 + (random.bits() % JITTER) as i64)
                .collect();
            for topic in 0..shape.topics {
                let value = &mut values[(node * shape.topics + topic) as usize];
                let mut samples = Samples::default();
                for tick in &ticks {
                    *value += (random.bits() % 201) as i64 - 100;
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
