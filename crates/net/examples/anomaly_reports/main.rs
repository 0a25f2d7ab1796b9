//! Measures what anomaly reports find and what they cost: recall, false reports, delay and bytes, on a simulated host under
//! mixed load with injected faults, or on a recording of a real host.
//!
//! ```sh
//! cargo run --release -p skopos-net --example anomaly_reports                      # the seed for tuning
//! cargo run --release -p skopos-net --example anomaly_reports -- --seed 20261127   # the held-out seed
//! cargo run --release -p skopos-net --example anomaly_reports -- --trace FILE      # a recording
//! ```
//!
//! A recording has lines `seconds TAB topic TAB kind TAB unit TAB value`, as the example `micrometrics` of `skopos-sense`
//! writes them. It has no known faults, so every report in it counts as a false one.

mod faults;
mod host;
mod judged;
mod trace;

use faults::{Fault, KINDS};
use host::Host;
use judged::{Judged, Tally};

/// The seed for tuning.
const TUNING_SEED: u64 = 1;

/// Injected faults of each kind.
const FAULTS_PER_KIND: usize = 8;

/// Seconds in which each load occurs before faults begin.
const WARM_UP: i64 = 1800;

/// Mean seconds from a fault to the next.
const SPACING: i64 = 120;

/// Hours without faults, for the rate of false reports.
const QUIET_HOURS: i64 = 24;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => simulated(TUNING_SEED),
        ["--seed", seed] => simulated(seed.parse()?),
        ["--trace", file] => trace::replay(file),
        _ => Err("usage: anomaly_reports [--seed N | --trace FILE]".into()),
    }
}

fn simulated(seed: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut host = Host::new(seed);
    let mut judged = Judged::new(host.metrics())?;
    let faults = faults::plan(seed, FAULTS_PER_KIND, WARM_UP, SPACING);
    let end = faults.last().map_or(0, |fault| fault.end + 120);
    println!(
        "seed {seed}, {} metrics, {} faults of {} kinds",
        host.metrics().len(),
        faults.len(),
        KINDS.len()
    );
    let tally = run(&mut host, &mut judged, &faults, 0..end)?;
    report_faults(&faults, &tally);
    tally.print_bytes("with faults");
    let mut host = Host::new(seed ^ 0x5eed);
    let mut judged = Judged::new(host.metrics())?;
    let quiet = run(&mut host, &mut judged, &[], 0..WARM_UP + QUIET_HOURS * 3600)?;
    println!(
        "false reports: {} in {QUIET_HOURS} host-hours without faults ({:.2} an hour)",
        quiet.false_reports,
        quiet.false_reports as f64 / QUIET_HOURS as f64
    );
    for (name, times) in quiet.false_names.iter().take(10) {
        println!("    {times} x {name}");
    }
    quiet.print_bytes("without faults");
    Ok(())
}

fn run(
    host: &mut Host,
    judged: &mut Judged,
    faults: &[Fault],
    seconds: std::ops::Range<i64>,
) -> Result<Tally, Box<dyn std::error::Error>> {
    let mut tally = Tally::new(faults.len());
    for second in seconds {
        let values = host.second(second, faults);
        // Nothing counts before every load has been seen.
        judged.tick(second, values, faults, second >= WARM_UP, &mut tally)?;
    }
    Ok(tally)
}

fn report_faults(faults: &[Fault], tally: &Tally) {
    println!("{:<22} {:>6} {:>6} {:>10}", "fault", "found", "of", "p50 delay");
    for (kind, name) in KINDS.iter().enumerate() {
        let found: Vec<f64> = faults
            .iter()
            .zip(&tally.delays)
            .filter(|(fault, _)| fault.kind == kind)
            .filter_map(|(_, delay)| *delay)
            .collect();
        let of = faults.iter().filter(|fault| fault.kind == kind).count();
        println!("{name:<22} {:>6} {of:>6} {:>8.2} s", found.len(), judged::median(&found));
    }
    let found: Vec<f64> = tally.delays.iter().flatten().copied().collect();
    println!(
        "recall {:.3}, p50 delay {:.2} s, false reports beside faults {}, precision {:.3}",
        found.len() as f64 / faults.len() as f64,
        judged::median(&found),
        tally.false_reports,
        tally.true_reports as f64 / (tally.true_reports + tally.false_reports).max(1) as f64,
    );
}
