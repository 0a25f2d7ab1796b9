//! `skopos-dataservice overhead`: throughput and latency of the service at each stage of recording.

use std::time::Duration;

use clap::value_parser;

use crate::Result;
use crate::children::Launcher;
use crate::overhead::{Options, Outcome, measure};
use crate::run::{Row, Run};
use crate::statistics::Median;
use crate::verbs::{print, print_json};

/// The throughput that full recording may cost.
const GOAL_PERCENT: f64 = 3.0;

/// The method and its limits.
const NOTES: [&str; 5] = [
    "A service at each stage, and a second one without recording, take turns in short slices in random order; all are started anew in each launch. An overhead is the median of the launches; a launch's is the median of its rounds, each against the slice without recording of the same round. The intervals are of order statistics.",
    "The second service without recording has no overhead: its number is the noise.",
    "Stage 2 of Skopos has no intervals; stage 2 of the paper has them, and is full without variables here.",
    "Processor time is that of all processes of the service, by the scheduler.",
    "OpenTelemetry, if it is there, is its own SDK with its batch processor and its exporter by HTTP, one span for each side of a call; full has the intervals and variables of Skopos as attributes. Its context travels as 25 bytes. The processor time of the collector is not in its rows. All services rest for a time after each slice then, and their processor time has that rest.",
];

#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Number of times that all services are started; the intervals are those between launches.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u32).range(1..=1000))]
    launches: u32,
    /// Rounds of each launch; each has a slice of each stage, in another order.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Milliseconds of a slice.
    #[arg(long, default_value_t = 50, value_parser = value_parser!(u64).range(10..=60_000))]
    slice: u64,
    /// Calls that are under way at a time.
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u32).range(1..=1024))]
    writers: u32,
    /// Keys of a put; 1 is the smallest call. Several are measured one after the other.
    #[arg(long, default_values_t = [1, 64], value_delimiter = ',', value_parser = value_parser!(u32).range(1..=512))]
    batch: Vec<u32>,
    /// Collector of spans, as http://HOST:PORT: measure the recorder that the program brings too. After each slice the
    /// services rest until the spans are written or sent.
    #[arg(long, value_name = "URL")]
    collector: Option<String>,
    /// Print the result as JSON, with each slice.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, launcher: &Launcher) -> Result<()> {
    let mut run = Run::new("dataservice-overhead", arguments.launches, &NOTES);
    for batch_size in &arguments.batch {
        let options = Options {
            launches: arguments.launches,
            rounds: arguments.rounds,
            slice: Duration::from_millis(arguments.slice),
            writers: arguments.writers,
            batch_size: *batch_size,
            collector: arguments.collector.clone(),
        };
        let outcome = measure(launcher, &options)?;
        if arguments.json {
            run.rows.extend(rows(&outcome));
        } else {
            print(&text(&outcome))?;
        }
    }
    if arguments.json { print_json(&run) } else { Ok(()) }
}

/// The rows of a raw run.
fn rows(outcome: &Outcome) -> Vec<Row> {
    let mut rows = Vec::new();
    let calls = match outcome.batch_size {
        1 => "put".to_owned(),
        keys => format!("put_packed of {keys} keys"),
    };
    for variant in &outcome.variants {
        let name = format!("{calls}, {}", variant.name);
        let row = |metric, unit, value| Row::new(&name, metric, unit, value);
        let overhead = |metric, median: &Median| {
            let row = Row::new(&name, metric, "%", median.median);
            row.beside("low", median.low).beside("high", median.high)
        };
        let throughput = overhead("throughput lost", &variant.throughput_overhead_percent);
        let slices = variant.slices.iter().flatten().map(|slice| slice.calls_per_second);
        rows.extend([
            row("throughput", "calls/s", variant.calls_per_second).rounds(slices),
            row("latency p50", "us", variant.p50_us),
            row("latency p99", "us", variant.p99_us),
            row("processor time of a call", "us", variant.cpu_us_per_call),
            match variant.name {
                "full" => {
                    let is_met = is_below(&variant.throughput_overhead_percent, GOAL_PERCENT);
                    throughput.goal("at most 3 %", is_met)
                }
                _ => throughput,
            },
            overhead("more processor time", &variant.cpu_overhead_percent),
            overhead("p50 longer", &variant.p50_overhead_percent),
            overhead("p99 longer", &variant.p99_overhead_percent),
        ]);
        match variant.records_lost {
            Some(lost) => rows.extend([
                row("records", "", variant.records as f64),
                row("records lost", "", lost as f64),
            ]),
            // Its collector counts the spans that arrive.
            None => rows.push(row("spans", "", variant.records as f64)),
        }
    }
    rows
}

/// Whether a median is at most `limit`; `None` if the limit lies within its interval.
fn is_below(median: &Median, limit: f64) -> Option<bool> {
    match (median.high <= limit, median.low > limit) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

fn text(outcome: &Outcome) -> String {
    let mut text = format!(
        "{} launches of {} rounds of {} ms, {} calls under way, {} keys in a put; medians of the launches' overheads with 95 % intervals\n{:<24} {:>9} {:>9} \
         {:>9} {:>9} {:>9} {:>6}  {:>24} {:>24} {:>24} {:>24}",
        outcome.launches,
        outcome.rounds,
        outcome.slice_ms,
        outcome.writers,
        outcome.batch_size,
        "stage",
        "calls/s",
        "p50 us",
        "p99 us",
        "CPU us",
        "records",
        "lost",
        "more CPU for a call",
        "throughput lost",
        "p50 longer",
        "p99 longer",
    );
    for variant in &outcome.variants {
        text.push_str(&format!(
            "\n{:<24} {:>9.0} {:>9.1} {:>9.1} {:>9.1} {:>9} {:>6}  {:>24} {:>24} {:>24} {:>24}",
            variant.name,
            variant.calls_per_second,
            variant.p50_us,
            variant.p99_us,
            variant.cpu_us_per_call,
            variant.records,
            variant.records_lost.map_or_else(|| "-".to_owned(), |lost| lost.to_string()),
            percent(&variant.cpu_overhead_percent),
            percent(&variant.throughput_overhead_percent),
            percent(&variant.p50_overhead_percent),
            percent(&variant.p99_overhead_percent),
        ));
    }
    text
}

fn percent(estimate: &Median) -> String {
    format!("{:+.2} % [{:+.2}, {:+.2}]", estimate.median, estimate.low, estimate.high)
}
