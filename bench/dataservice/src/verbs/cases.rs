//! `skopos-dataservice cases`: C1 to C7 in turn, and the gain of each change of configuration.

use clap::value_parser;

use crate::Result;
use crate::case::measure::{Measured, measure};
use crate::case::table;
use crate::children::Launcher;
use crate::process::Work;
use crate::run::{Row, Run};
use crate::statistics::Median;
use crate::verbs::{print, print_json};

/// The method and its limits.
const NOTES: [&str; 4] = [
    "All processes run on this machine, each case once in each round. Time of transfers, of the medium and of reading events is slept, so that many execution streams make progress on few cores; pools, locks, queues and limits are real.",
    "The time of all calls is the paper's cumulative execution time: the sum of the latencies of all calls of clients.",
    "A predicted gain is that of the findings about the traces of the case before the change; the median of the rounds.",
    "Shares of the time of all calls are those of the last round.",
];

#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Rounds; each runs every case once.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print the result as JSON, with each round.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments, launcher: &Launcher) -> Result<()> {
    let cases: Vec<_> = table::all().into_iter().filter(|case| case.work == Work::Hepnos).collect();
    let measured = measure(launcher, &cases, arguments.rounds)?;
    if arguments.json { print_json(&raw(&measured)) } else { print(&text(&measured)) }
}

/// The raw run.
fn raw(measured: &Measured) -> Run {
    let mut run = Run::new("dataservice-cases", measured.rounds, &NOTES);
    for case in &measured.cases {
        let name = format!("{}: {}", case.case, case.summary);
        let row = |metric, unit, value| Row::new(&name, metric, unit, value);
        let seconds = case.outcomes.iter().map(|outcome| outcome.seconds);
        let sums = case.outcomes.iter().map(|outcome| outcome.cumulative_seconds);
        run.rows.extend([
            row("wall time", "s", case.seconds.median).rounds(seconds),
            row("all calls together", "s", case.cumulative_seconds.median).rounds(sums),
            row("in queues", "%", case.shares.queue * 100.0),
            row("waiting for the backend", "%", case.shares.backend_wait * 100.0),
            row("unaccounted", "%", case.shares.unaccounted * 100.0),
            row("calls completed by a full read", "%", case.shares.full_reads * 100.0),
        ]);
    }
    for change in &measured.changes {
        let name = format!("{} to {}: {} = {}", change.from, change.to, change.key, change.value);
        let (saved, predicted) = (change.cumulative_saved_percent, change.predicted_percent);
        let ratio = predicted.median / saved.median;
        let first = change.named_first as f64;
        run.rows.extend([
            Row::new(&name, "time of all calls saved", "%", saved.median)
                .beside("predicted", predicted.median)
                .beside("low", saved.low)
                .beside("high", saved.high),
            Row::new(&name, "wall time saved", "%", change.seconds_saved_percent.median),
            Row::new(&name, "rounds in which the first finding names the cause", "", first)
                .goal("all rounds", Some(change.named_first == measured.rounds as usize)),
        ]);
        if ratio.is_finite() {
            let row = Row::new(&name, "prediction / measurement", "", ratio);
            run.rows.push(row.goal("0.8 to 1.2", Some((0.8..=1.2).contains(&ratio))));
        }
    }
    run
}

fn text(measured: &Measured) -> String {
    let mut text = format!(
        "{} rounds; medians with 95 % intervals\n{:<4} {:<45} {:>24} {:>26} {:>6} {:>7} {:>11} {:>10}",
        measured.rounds,
        "case",
        "",
        "wall time, s",
        "all calls together, s",
        "queue",
        "backend",
        "unaccounted",
        "full reads",
    );
    for case in &measured.cases {
        text.push_str(&format!(
            "\n{:<4} {:<45} {:>24} {:>26} {:>6.2} {:>7.2} {:>11.2} {:>10.2}",
            case.case,
            case.summary,
            interval(&case.seconds, 3),
            interval(&case.cumulative_seconds, 2),
            case.shares.queue,
            case.shares.backend_wait,
            case.shares.unaccounted,
            case.shares.full_reads,
        ));
    }
    for case in &measured.cases {
        if let Some(first) = case.findings.last().and_then(|findings| findings.first()) {
            text.push_str(&format!("\n{}: {}: {}", case.case, first.name, first.sentence));
        }
    }
    for change in &measured.changes {
        text.push_str(&format!(
            "\n{} to {}, {} = {}: all calls together {} % less, predicted {} %; wall time {} % less; the \
             first finding names the cause in {} of {} rounds",
            change.from,
            change.to,
            change.key,
            change.value,
            interval(&change.cumulative_saved_percent, 1),
            interval(&change.predicted_percent, 1),
            interval(&change.seconds_saved_percent, 1),
            change.named_first,
            measured.rounds,
        ));
    }
    text
}

fn interval(estimate: &Median, digits: usize) -> String {
    if estimate.median.is_nan() {
        return "not known".to_owned();
    }
    format!("{:.digits$} [{:.digits$}, {:.digits$}]", estimate.median, estimate.low, estimate.high)
}
