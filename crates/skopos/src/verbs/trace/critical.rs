//! `skopos trace critical-path`: the calls that determine how long requests take.

use std::process::ExitCode;

use skopos_rpc::analysis::critical::{
    CriticalCallpath, CriticalPaths, OneCriticalPath, Options, critical_path_of, critical_paths,
};
use skopos_rpc::folder::Folder;
use skopos_term::format::printable;
use skopos_term::{Failure, Global, Out, Style, format};

use super::lines::{callpath, time, whole};
use super::place::{failed, opened};

/// The callpaths that people see; `--json` has all.
const MAX_PATHS: usize = 15;

pub(super) fn run(
    global: &Global,
    folder: &Folder,
    faster: f64,
    root: Option<String>,
) -> Result<ExitCode, Failure> {
    let trace = opened(folder)?;
    let options = Options { faster, root, ..Options::default() };
    let found = critical_paths(&trace, &options).map_err(|e| failed(&e))?;
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&found)?,
        Style::Plain => plain(&found, &mut out)?,
        Style::Human => human(&found, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each callpath: names, requests, ns on critical paths, predicted change of the mean and its interval.
fn plain(found: &CriticalPaths, out: &mut Out) -> Result<(), Failure> {
    for path in &found.paths {
        let change = path.what_if.mean_change;
        out.line(format!(
            "{}\t{}\t{}\t{}\t{}\t{}",
            callpath(&path.names),
            path.requests,
            path.critical_ns,
            change.value,
            change.low,
            change.high
        ))?;
    }
    Ok(())
}

fn human(found: &CriticalPaths, out: &mut Out) -> Result<(), Failure> {
    let d = &found.durations;
    out.line(format!(
        "{} requests: mean {}, p50 {}, p99 {}",
        found.requests,
        time(d.mean),
        whole(d.p50),
        whole(d.p99)
    ))?;
    let faster = format!("{} faster gives", format::share(found.faster));
    let head = ["share", "time", "mostly", faster.as_str(), "p99 then", "callpath"];
    let head = head.map(str::to_owned).to_vec();
    let shown = found.paths.iter().take(MAX_PATHS).map(row);
    let rows: Vec<Vec<String>> = [head].into_iter().chain(shown).collect();
    out.table(&rows, &[0, 1, 4])?;
    if found.paths.len() > MAX_PATHS {
        out.line(format!("and {} callpaths with less", found.paths.len() - MAX_PATHS))?;
    }
    for (count, what) in [
        (found.requests_not_played, "requests have too many calls for a prediction"),
        (found.calls_left_out, "calls are left out: their requests have too many"),
    ] {
        if count > 0 {
            out.line(format!("{count} {what}"))?;
        }
    }
    Ok(())
}

fn row(path: &CriticalCallpath) -> Vec<String> {
    let part = path.parts.iter().max_by_key(|(_, ns)| **ns).map_or("", |(name, _)| name);
    let change = path.what_if.mean_change;
    let percents = |share: f64| 100.0 * share;
    vec![
        format::share(path.share),
        whole(path.critical_ns),
        part.to_owned(),
        format!(
            "{:+.1} % ({:+.1} to {:+.1})",
            percents(change.value),
            percents(change.low),
            percents(change.high)
        ),
        whole(path.what_if.p99_ns),
        callpath(&path.names),
    ]
}

pub(super) fn run_one(
    global: &Global,
    folder: &Folder,
    id: &str,
    faster: f64,
) -> Result<ExitCode, Failure> {
    let trace = opened(folder)?;
    let found = critical_path_of(&trace, id, faster).map_err(|e| failed(&e))?;
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&found)?,
        Style::Plain | Style::Human => steps(&found, faster, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn steps(found: &OneCriticalPath, faster: f64, out: &mut Out) -> Result<(), Failure> {
    let head = ["after", "for", "part", "process", "callpath"].map(str::to_owned).to_vec();
    let rows = found.steps.iter().map(|step| {
        let process = printable(step.process.as_deref().unwrap_or("unknown"));
        let part = step.part.name().to_owned();
        vec![whole(step.start_ns), whole(step.duration_ns), part, process, callpath(&step.names)]
    });
    let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
    out.table(&rows, &[0, 1])?;
    out.line(format!("The request took {}.", whole(found.duration_ns)))?;
    for (names, predicted) in &found.what_if {
        out.line(format!(
            "With {} {} faster it would take {}.",
            callpath(names),
            format::share(faster),
            time(*predicted)
        ))?;
    }
    Ok(())
}
