//! `skopos-dataservice cases`: C1 to C7 in turn, and the gain of each change of configuration.

use clap::value_parser;
use skopos_dataservice::Result;
use skopos_dataservice::case::measure::{Measured, measure};
use skopos_dataservice::case::table;
use skopos_dataservice::children::Launcher;
use skopos_dataservice::process::Work;
use skopos_dataservice::statistics::Estimate;

use crate::verbs::{print, print_json};

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
    if arguments.json { print_json(&measured) } else { print(&text(&measured)) }
}

fn text(measured: &Measured) -> String {
    let mut text = format!(
        "{} rounds; means with 95 % intervals\n{:<4} {:<45} {:>24} {:>26} {:>6} {:>7} {:>11} {:>10}",
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

fn interval(estimate: &Estimate, digits: usize) -> String {
    if estimate.mean.is_nan() {
        return "not known".to_owned();
    }
    format!("{:.digits$} [{:.digits$}, {:.digits$}]", estimate.mean, estimate.low, estimate.high)
}
