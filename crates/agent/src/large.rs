//! Measures a tick of a machine with many cores, with its segment. It is ignored by default:
//!
//! ```sh
//! cargo test --release -p skopos-agent --lib -- --ignored --nocapture cost_of_a_tick
//! ```

use std::io::Write as _;
use std::time::{Duration, Instant};

use skopos_model::Timestamp;
use skopos_sense::{Root, open_all};
use skopos_shm::Publisher;

use crate::probe::Probe;

#[path = "../../sense/tests/it/large.rs"]
mod files;

const CORES: u64 = 256;

const TICKS: u64 = 300;

/// Sensors that read a file of each core.
const OF_CORES: [&str; 3] = ["cpu", "interrupts", "softirqs"];

#[test]
#[ignore = "a measurement"]
fn cost_of_a_tick_with_256_cores() {
    let folder = tempfile::tempdir().expect("a folder");
    files::write(folder.path(), CORES, 1);
    let root = Root {
        proc: folder.path().join("proc"),
        sys: folder.path().join("sys"),
        ..Root::default()
    };
    let publisher = Publisher::builder("large").dir(folder.path()).create().expect("a segment");
    let opened = open_all(&root).sensors.into_iter();
    let of_cores = opened.filter(|sensor| OF_CORES.contains(&sensor.family().name));
    let mut probes: Vec<Probe> = of_cores
        .map(|sensor| Probe::new(&publisher, &"n01".into(), sensor).expect("room"))
        .collect();
    let mut costs: Vec<Duration> = Vec::new();
    let mut stored = 0;
    for tick in 1..=TICKS {
        files::write(folder.path(), CORES, tick);
        let now = Duration::from_secs(tick);
        let started = Instant::now();
        for probe in &mut probes {
            let outcome = probe.poll((Timestamp::from_nanos(now.as_nanos() as i64), now));
            assert!(outcome.refusal.is_none() && outcome.result.is_ok(), "{outcome:?}");
            assert_eq!(outcome.counts.publish_errors, 0);
            stored += outcome.counts.stored;
        }
        costs.push(started.elapsed());
    }
    costs.remove(0);
    let mean = costs.iter().sum::<Duration>() / costs.len() as u32;
    costs.sort();
    let facts: usize = probes.iter().map(Probe::len).sum();
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{CORES} cores, {facts} facts, {stored} samples in {TICKS} ticks: {mean:?} a tick, median {:?}, most {:?}; \
         segment of {} bytes",
        costs[costs.len() / 2],
        costs[costs.len() - 1],
        publisher.used_bytes()
    )
    .expect("written");
}
