//! Measures the cost of a detector: nanoseconds per observed value, for each detector, with
//! hundreds of vertices taking turns as in an agent.
//!
//! ```sh
//! cargo run --release -p skopos-score --example anomaly_cost
//! ```

use std::time::Instant;

use skopos_model::{Kind, Timestamp, Topic};
use skopos_score::anomaly::{DETECTORS, Rule, Watch};

const VERTICES: usize = 400;
const ROUNDS: usize = 4000;
/// Rounds that are timed together, about a millisecond; the result is the best batch, because other
/// load on the machine only adds to the time.
const BATCH: usize = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:<14} {:>12} {:>12} {:>12}", "detector", "gauge ns", "counter ns", "bytes");
    for detector in DETECTORS {
        let mut rule = Rule::new("cost", "**", detector);
        if detector == "threshold" {
            rule.above = Some(1e12);
        }
        let (gauge, bytes) = measure(&rule, Kind::Gauge)?;
        let (counter, _) = measure(&rule, Kind::Counter)?;
        println!("{detector:<14} {gauge:>12.1} {counter:>12.1} {bytes:>12}");
    }
    Ok(())
}

/// Returns nanoseconds per value and bytes per vertex.
fn measure(rule: &Rule, kind: Kind) -> Result<(f64, usize), Box<dyn std::error::Error>> {
    let mut watch = Watch::new(std::slice::from_ref(rule))?;
    let mut vertices = Vec::new();
    for i in 0..VERTICES {
        let topic = Topic::new(&format!("n/{i}"))?;
        vertices.push(watch.joined(&topic, kind).ok_or("no room")?);
    }
    let mut events = Vec::new();
    let mut bits = 1_u64;
    let mut total = 0.0;
    // The values are made ahead of time, so that their creation is not measured.
    let values: Vec<f64> = (0..VERTICES * ROUNDS)
        .map(|_| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let noise = ((bits >> 33) as f64 / f64::from(1 << 30) - 1.0) * 10.0;
            total += 100.0 + noise;
            if kind == Kind::Counter { total } else { 100.0 + noise }
        })
        .collect();
    let mut best = f64::INFINITY;
    let mut second = 0_i64;
    for values in values.chunks_exact(VERTICES * BATCH) {
        let started = Instant::now();
        for values in values.chunks_exact(VERTICES) {
            second += 1;
            let at = Timestamp::from_nanos(second * 1_000_000_000);
            for (vertex, value) in vertices.iter().zip(values) {
                watch.observe(*vertex, at, *value, &mut events);
            }
        }
        best = best.min(started.elapsed().as_nanos() as f64 / values.len() as f64);
    }
    eprintln!("{} {kind}: {} events", rule.detector, events.len());
    Ok((best, watch.state_bytes() / VERTICES))
}
