//! `skopos trace compare` and `skopos trace gate`: two runs, callpath by callpath.

use std::path::Path;
use std::process::ExitCode;

use skopos_rpc::analysis::comparison::{Comparison, Gate, Limits, PathChange, compare, gate};
use skopos_rpc::folder::Folder;
use skopos_term::format::printable;
use skopos_term::{EXIT_NO, Failure, Global, Out, Style, format};

use super::lines::{callpath, time, whole};
use super::place::{failed, opened};

/// The callpaths that people see; `--json` has all.
const MAX_PATHS: usize = 20;

fn compared(first: &Path, second: &Path) -> Result<Comparison, Failure> {
    let [first, second] = [first, second].map(|path| Folder::open(path).map_err(|e| failed(&e)));
    let (first, second) = (first?, second?);
    let (first, second) = (opened(&first)?, opened(&second)?);
    compare(&first, &second).map_err(|e| failed(&e))
}

pub(super) fn run(global: &Global, first: &Path, second: &Path) -> Result<ExitCode, Failure> {
    let found = compared(first, second)?;
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&found)?,
        Style::Plain => plain(&found, &mut out)?,
        Style::Human => human(&found, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each callpath: names, calls, means in ns, change with its interval, p-value.
fn plain(found: &Comparison, out: &mut Out) -> Result<(), Failure> {
    for path in &found.paths {
        let p = path.p_value.map_or(String::new(), |p| p.to_string());
        out.line(format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{p}",
            callpath(&path.names),
            path.calls[0],
            path.calls[1],
            path.mean_ns[0],
            path.mean_ns[1],
            path.change.value,
            path.change.low,
            path.change.high
        ))?;
    }
    Ok(())
}

fn human(found: &Comparison, out: &mut Out) -> Result<(), Failure> {
    for (process, key, first, second) in &found.settings {
        let text = |value: &Option<String>| printable(value.as_deref().unwrap_or("not set"));
        let (first, second) = (text(first), text(second));
        out.line(format!("{}: {} = {first} | {second}", printable(process), printable(key)))?;
    }
    let head = ["mean 1", "mean 2", "change (95 %)", "p99 1", "p99 2", "chance?", "callpath"];
    let rows = found.paths.iter().take(MAX_PATHS).map(row);
    let rows: Vec<Vec<String>> =
        [head.map(str::to_owned).to_vec()].into_iter().chain(rows).collect();
    out.table(&rows, &[0, 1, 3, 4])?;
    if found.paths.len() > MAX_PATHS {
        out.line(format!("and {} callpaths that changed less", found.paths.len() - MAX_PATHS))?;
    }
    for (what, paths) in [("first", &found.only_first), ("second", &found.only_second)] {
        for names in paths {
            out.line(format!("only in the {what} run: {}", callpath(names)))?;
        }
    }
    for names in &found.different_sides {
        out.line(format!(
            "callers alone in one run, and callees in the other one: {}",
            callpath(names)
        ))?;
    }
    Ok(())
}

fn row(path: &PathChange) -> Vec<String> {
    let percents = |share: f64| 100.0 * share;
    let change = path.change;
    let chance = match path.p_value {
        None => "too short to tell".to_owned(),
        // The least value of the test is not zero.
        Some(p) if path.is_significant && p < 0.001 => "no (p < 0.001)".to_owned(),
        Some(p) if path.is_significant => format!("no (p = {p:.3})"),
        Some(p) => format!("maybe (p = {p:.2})"),
    };
    vec![
        time(path.mean_ns[0]),
        time(path.mean_ns[1]),
        format!(
            "{:+.1} % ({:+.1} to {:+.1})",
            percents(change.value),
            percents(change.low),
            percents(change.high)
        ),
        whole(path.p99_ns[0]),
        whole(path.p99_ns[1]),
        chance,
        callpath(&path.names),
    ]
}

/// Exits with 0 if the second run passes, and with 1 if it does not.
pub(super) fn run_gate(
    global: &Global,
    first: &Path,
    second: &Path,
    limits: &Limits,
) -> Result<ExitCode, Failure> {
    let found = gate(&compared(first, second)?, limits);
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&found)?,
        Style::Plain | Style::Human => verdict(&found, limits, &mut out)?,
    }
    out.flush()?;
    Ok(if found.passes { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) })
}

fn verdict(found: &Gate, limits: &Limits, out: &mut Out) -> Result<(), Failure> {
    let word = if found.passes { "passed" } else { "failed" };
    out.line(format!(
        "{word}: {} callpaths judged, means may rise by {}",
        found.judged,
        format::share(limits.mean_rise)
    ))?;
    if found.judged == 0 {
        out.line("  no callpath can be judged; `--calls` is the fewest calls of one in each run")?;
    }
    for failure in &found.failures {
        out.line(format!("  {}: {}", callpath(&failure.names), printable(&failure.reason)))?;
    }
    for (names, reason) in &found.not_judged {
        out.line(out.dim(&format!("  not judged: {}: {}", callpath(names), printable(reason))))?;
    }
    Ok(())
}
