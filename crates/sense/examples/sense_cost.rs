//! Measures the cost of a tick of each sensor on this machine, and counts the facts that it yields.
//!
//! ```sh
//! cargo run --release -p skopos-sense --example sense_cost [TICKS [PAUSE_MS]]
//! ```
//!
//! Without a pause everything is in the caches of the core. With a pause of 1000 the numbers are
//! those of an agent that polls each second.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use skopos_model::schema::Metric;
use skopos_model::{Scalar, Structured};
use skopos_sense::{FactId, Root, Sink, Tick, open_all};

/// Receives facts like a segment, but does not share them.
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

    fn set_structured(&mut self, id: FactId, _: &Structured) {
        assert!(self.live.contains(&id.index().expect("none was refused")));
    }
}

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse().expect("a number"));
    let ticks: u32 = args.next().unwrap_or(2000);
    let pause = Duration::from_millis(args.next().unwrap_or(0).into());
    let mut opened = open_all(&Root::default());
    // These sensors run a program, minutes or seconds apart; here they would run it thousands of
    // times.
    opened.sensors.retain(|sensor| !["smart", "slurm"].contains(&sensor.family().name));
    let mut tables: Vec<Table> = opened.sensors.iter().map(|_| Table::default()).collect();
    let mut costs: Vec<Vec<Duration>> = vec![Vec::new(); tables.len()];
    let start = Instant::now();
    for _ in 0..ticks {
        for (at, sensor) in opened.sensors.iter_mut().enumerate() {
            let before = Instant::now();
            let mut tick = Tick { monotonic: start.elapsed(), sink: &mut tables[at] };
            if let Err(e) = sensor.poll(&mut tick) {
                eprintln!("{}: {e}", sensor.family().name);
            }
            costs[at].push(before.elapsed());
        }
        std::thread::sleep(pause);
    }
    println!("{:<12} {:>6} {:>10} {:>10}", "sensor", "facts", "mean us", "median us");
    let (mut all_facts, mut all_mean, mut all_median) = (0, 0.0, 0.0);
    for ((sensor, table), costs) in opened.sensors.iter().zip(&tables).zip(&mut costs) {
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
    for skip in &opened.skips {
        println!("skipped {}: {}", skip.what, skip.reason);
    }
}
