//! `skopos-dataservice case NAME`: a case with all its processes.

use clap::builder::PossibleValuesParser;

use crate::Result;
use crate::case::{Outcome, table};
use crate::verbs::options::Recording;
use crate::verbs::{print, print_json};

#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The case.
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    name: String,
    /// Print the outcome as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    recording: Recording,
}

pub(crate) fn names() -> Vec<&'static str> {
    table::all().into_iter().map(|case| case.name).collect()
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let launcher = arguments.recording.launcher()?;
    for case in table::all().into_iter().filter(|case| case.name == arguments.name) {
        let outcome = case.run(&launcher)?;
        if arguments.json {
            print_json(&outcome)?;
        } else {
            print(&format!("{}: {}", case.name, case.summary))?;
            print(&text(&outcome))?;
        }
    }
    Ok(())
}

fn text(outcome: &Outcome) -> String {
    let mut text = format!(
        "  {} events in {} calls: {:.3} s, {:.0} events/s\n  \
         latency of a call: p50 {:.0} us, p99 {:.0} us; all together {:.2} s",
        outcome.events,
        outcome.calls,
        outcome.seconds,
        outcome.events_per_second,
        outcome.p50_us,
        outcome.p99_us,
        outcome.cumulative_seconds,
    );
    if let Some(folder) = &outcome.trace {
        text.push_str(&format!("\n  traces: {}", folder.display()));
    }
    text
}
