//! What a tick of each sensor costs on this machine, and how many facts it yields.
//!
//! ```sh
//! cargo run --release -p skopos-sense --example cost [TICKS]
//! ```

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use skopos_model::Scalar;
use skopos_model::schema::Metric;
use skopos_sense::{FactId, Root, Sink, Tick, open_all};

/// Takes facts as a segment would, less the sharing.
#[derive(Default)]
struct Table {
    last: Vec<Option<Scalar>>,
    live: BTreeSet<u32>,
}

impl Sink for Table {
    fn register(&mut self, _: &'static Metric, _: &str) -> FactId {
        let index = u32::try_from(self.last.len()).expect("fewer facts than that");
        self.last.push(None);
        self.live.insert(index);
        FactId::from_index(index)
    }

    fn unregister(&mut self, id: FactId) {
        self.live.remove(&id.index().expect("none was refused"));
    }

    fn set(&mut self, id: FactId, value: Scalar) {
        self.last[id.index().expect("none was refused") as usize] = Some(value);
    }
}

fn main() {
    let ticks: u32 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(2000);
    let mut opened = open_all(&Root::default());
    let start = Instant::now();
    let (mut all_facts, mut all_mean, mut all_median) = (0, 0.0, 0.0);
    println!("{:<12} {:>6} {:>10} {:>10}", "sensor", "facts", "mean us", "median us");
    for sensor in &mut opened.sensors {
        let mut table = Table::default();
        let mut costs: Vec<Duration> = Vec::new();
        for _ in 0..ticks {
            let before = Instant::now();
            let mut tick = Tick { monotonic: start.elapsed(), sink: &mut table };
            if let Err(e) = sensor.poll(&mut tick) {
                eprintln!("{}: {e}", sensor.family().name);
            }
            costs.push(before.elapsed());
        }
        costs.sort();
        let median = costs[costs.len() / 2].as_secs_f64() * 1e6;
        let mean = costs.iter().sum::<Duration>().as_secs_f64() * 1e6 / f64::from(ticks);
        let facts = table.live.len();
        println!("{:<12} {facts:>6} {mean:>10.1} {median:>10.1}", sensor.family().name);
        all_facts += facts;
        all_mean += mean;
        all_median += median;
    }
    println!("{:<12} {all_facts:>6} {all_mean:>10.1} {all_median:>10.1}", "all");
    for skip in opened
        .skips
        .iter()
        .chain(&opened.sensors.iter().flat_map(|s| s.skips()).collect::<Vec<_>>())
    {
        println!("skipped {}: {}", skip.what, skip.reason);
    }
}
