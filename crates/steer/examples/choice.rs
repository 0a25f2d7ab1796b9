//! Compares ways to choose among replicas: the 99th percentile of the latency in each scenario at each load, the mean
//! of the seeds with the smallest and the largest.
//!
//! ```sh
//! cargo run --release -p skopos-steer --example choice          # the seeds for tuning
//! cargo run --release -p skopos-steer --example choice judge    # the seeds that were held out
//! ```

use std::time::Duration;

use skopos_steer::rank::Settings;
use skopos_steer::simulate::{JUDGING, MS, Nanos, Peer, SCENARIOS, Shape, TUNING, simulate};

const LOADS: [f64; 3] = [0.5, 0.7, 0.9];

fn main() {
    let judge = std::env::args().any(|a| a == "judge");
    let seeds: &[u64] = if judge { &JUDGING } else { &TUNING };
    let settings = Settings { clients: 100.0, ..Settings::default() };
    let peers = [
        ("round robin", Peer::RoundRobin),
        ("random of two", Peer::RandomOfTwo),
        ("C3", Peer::C3),
        ("Prequal", Peer::Prequal),
        ("never withdrawn", Peer::Skopos(Settings { stale_after: Duration::MAX, ..settings })),
        ("Skopos", Peer::Skopos(settings)),
        ("Skopos, reports", Peer::SkoposReports(settings)),
        ("oracle", Peer::Oracle),
    ];
    println!("seeds {seeds:?}; p99 in ms: mean (smallest, largest); timeouts");
    for scenario in SCENARIOS {
        for load in LOADS {
            for (name, peer) in peers {
                let shape = Shape { length: 5_000 * MS, ..Shape::new(load, scenario) };
                let mut timeouts = 0;
                let mut run = |seed: &u64| -> f64 {
                    let outcome = simulate(&shape, peer, *seed);
                    timeouts += outcome.timeouts;
                    millis(outcome.quantile(0.99))
                };
                let p99: Vec<f64> = seeds.iter().map(&mut run).collect();
                let mean = p99.iter().sum::<f64>() / p99.len() as f64;
                let low = p99.iter().copied().fold(f64::INFINITY, f64::min);
                let high = p99.iter().copied().fold(0.0, f64::max);
                let case = format!("{scenario:?} {load}").to_lowercase();
                println!("{case:<14} {name:<16} {mean:>8.1} ({low:.1}, {high:.1}) {timeouts}");
            }
        }
    }
}

fn millis(nanos: Nanos) -> f64 {
    nanos as f64 / MS as f64
}
