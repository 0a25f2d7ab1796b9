//! Measures the time of a ranking: p50 and p99 for each method, with values that change each time.
//!
//! ```sh
//! cargo run --release -p skopos-steer --example rank_cost
//! ```

use std::time::{Duration, Instant};

use skopos_model::{SplitMix64, Timestamp};
use skopos_steer::rank::{Inputs, Method, Metric, Profile, Ranker, Reading, Subject};

const CANDIDATES: usize = 1000;
const METRICS: usize = 10;
const ROUNDS: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{CANDIDATES} candidates, µs");
    println!("{:<22} {:>8} {:>8} {:>8}", "method", "p50", "p99", "max");
    for method in [Method::Latency, Method::Equal, Method::Given, Method::Learned, Method::Pareto] {
        measure(method, METRICS)?;
    }
    measure(Method::Pareto, 2)
}

fn measure(method: Method, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let metrics = (0..count)
        .map(|at| {
            let subject = if at == 0 { Subject::Latency } else { Subject::Host };
            Metric { subject, ..Metric::new(&format!("m{at}"), 0.01) }
        })
        .collect();
    let mut ranker = Ranker::new(Profile::new("cost", method, metrics), 1)?;
    let names: Vec<String> = (0..CANDIDATES).map(|n| format!("n{n:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut inputs = Inputs::new(CANDIDATES, count);
    let mut random = SplitMix64::new(2);
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let now = Timestamp::from_nanos(0).saturating_add(Duration::from_secs(round as u64));
        for candidate in 0..CANDIDATES {
            for metric in 0..count {
                let value = random.between(0.1, 10.0);
                inputs.set(candidate, metric, Reading { value, at: now, samples: 10 });
            }
        }
        let started = Instant::now();
        let ranking = ranker.rank(now, &names, &inputs)?;
        times.push(started.elapsed());
        assert_eq!(ranking.entries().len(), CANDIDATES);
    }
    times.sort_unstable();
    let micros = |at: usize| times[at].as_secs_f64() * 1e6;
    println!(
        "{:<22} {:>8.0} {:>8.0} {:>8.0}",
        format!("{method:?}, {count} metrics").to_lowercase(),
        micros(ROUNDS / 2),
        micros(ROUNDS * 99 / 100),
        micros(ROUNDS - 1)
    );
    Ok(())
}
