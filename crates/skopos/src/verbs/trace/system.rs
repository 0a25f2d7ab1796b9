//! `skopos trace system`: the variables of processes over time.

use std::process::ExitCode;

use skopos_rpc::analysis::system::{System, VariableSeries, system};
use skopos_rpc::folder::Folder;
use skopos_term::format::printable;
use skopos_term::{Failure, Global, Out, Style, format};

use super::lines::time;
use super::place::{failed, heading, opened};
use crate::verbs::spark::Cells;

/// The most characters of a line of values: with its name and its numbers it fits a wide terminal.
const MOST_CELLS: usize = 100;

pub(super) fn run(global: &Global, folder: &Folder, points: usize) -> Result<ExitCode, Failure> {
    let trace = opened(folder)?;
    let mut out = Out::new(global.style());
    let points = if out.style == Style::Human { points.min(MOST_CELLS) } else { points };
    let found = system(&trace, points).map_err(|e| failed(&e))?;
    match out.style {
        Style::Json => out.json(&found)?,
        Style::Plain => plain(&found, &mut out)?,
        Style::Human => human(&found, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each variable: process, name, unit, mean, p50, p99 and greatest value.
fn plain(found: &System, out: &mut Out) -> Result<(), Failure> {
    for process in &found.processes {
        for s in &process.series {
            let (name, v) = (printable(&s.name), &s.values);
            let process = printable(&process.process);
            let numbers = format!("{}\t{}\t{}\t{}", v.mean, v.p50, v.p99, v.max);
            out.line(format!("{process}\t{name}\t{}\t{numbers}", printable(&s.unit)))?;
        }
    }
    Ok(())
}

fn human(found: &System, out: &mut Out) -> Result<(), Failure> {
    for (at, process) in found.processes.iter().enumerate() {
        if at > 0 {
            out.line("")?;
        }
        heading(out, &printable(&process.process))?;
        if !process.config.is_empty() {
            let all = process.config.iter().map(|(key, value)| format!("{key} = {value}"));
            let all = all.collect::<Vec<_>>().join(", ");
            out.line(out.dim(&printable(&all)))?;
        }
        let head = ["  variable", "over time", "mean", "most"].map(str::to_owned).to_vec();
        let rows: Vec<Vec<String>> =
            [head].into_iter().chain(process.series.iter().map(row)).collect();
        match process.series.is_empty() {
            true => out.line("no variables")?,
            false => out.table(&rows, &[2, 3])?,
        }
    }
    if found.values_left_out > 0 {
        out.line(format!("{} values are left out: too many variables", found.values_left_out))?;
    }
    Ok(())
}

fn row(series: &VariableSeries) -> Vec<String> {
    let known = || series.means.iter().flatten().copied();
    // A counter that was sampled once has no rate.
    let mean = known().reduce(|a, b| a + b).map(|sum| sum / known().count() as f64);
    let most = series.maxima.iter().flatten().copied().reduce(f64::max);
    let name = printable(&series.name);
    let name = if series.is_of_calls { format!("{name} (of calls)") } else { name };
    let line = Cells::of(&series.means).line();
    let text = |value: Option<f64>| match value {
        Some(value) => amount(value, &series.unit),
        None => "unknown".to_owned(),
    };
    vec![format!("  {name}"), line, text(mean), text(most)]
}

fn amount(value: f64, unit: &str) -> String {
    match unit {
        "ns" => time(value),
        "us" => time(value * 1e3),
        "ns/s" => format::share(value / 1e9),
        "us/s" => format::share(value / 1e6),
        "bytes" => format::bytes(value),
        "bytes/s" => format!("{}/s", format::bytes(value)),
        other => format!("{} {}", (value * 100.0).round() / 100.0, printable(other)),
    }
}
