//! `skopos trace profile`: callpaths by their cumulative end-to-end time.

use std::process::ExitCode;

use skopos_rpc::analysis::profile::{
    EntityCalls, IntervalTime, PathProfile, Profile, SeenBy, Unaccounted, profile,
};
use skopos_rpc::folder::Folder;
use skopos_term::format::printable;
use skopos_term::{Failure, Global, Out, Style, format};

use super::lines::{callpath, time, whole};
use super::place::{failed, heading, opened};

/// The processes of a callpath that people see; `--json` has all.
const MAX_PROCESSES: usize = 8;

pub(super) fn run(
    global: &Global,
    folder: &Folder,
    top: usize,
    wanted: Option<&str>,
) -> Result<ExitCode, Failure> {
    let trace = opened(folder)?;
    let mut found = profile(&trace).map_err(|e| failed(&e))?;
    let total = found.paths.len();
    if let Some(wanted) = wanted {
        found.paths.retain(|path| path.names.join(" → ").contains(wanted));
    }
    let matching = found.paths.len();
    found.paths.truncate(top);
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&found)?,
        Style::Plain => plain(&found, &mut out)?,
        Style::Human => human(&found, (matching, total), &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each callpath: names, calls, errors, sum, mean, p50, p99 in ns.
fn plain(found: &Profile, out: &mut Out) -> Result<(), Failure> {
    for path in &found.paths {
        let s = path.end_to_end.summary();
        out.line(format!(
            "{}\t{}\t{}\t{:.0}\t{:.0}\t{}\t{}",
            callpath(&path.names),
            path.calls,
            path.errors,
            s.sum,
            s.mean,
            s.p50,
            s.p99
        ))?;
    }
    Ok(())
}

fn human(found: &Profile, (matching, total): (usize, usize), out: &mut Out) -> Result<(), Failure> {
    let counts = &found.counts;
    out.line(format!(
        "{} of {} over {}; {} of {total} callpaths",
        format::count(counts.records, "record"),
        format::count(counts.files, "file"),
        time(found.length_ns as f64),
        found.paths.len().min(matching),
    ))?;
    for (rank, path) in found.paths.iter().enumerate() {
        out.line("")?;
        heading(out, &format!("{}. {}", rank + 1, callpath(&path.names)))?;
        one(path, out)?;
    }
    Ok(())
}

fn one(path: &PathProfile, out: &mut Out) -> Result<(), Failure> {
    let s = path.end_to_end.summary();
    let seen = match path.seen_by {
        SeenBy::Origin => "",
        SeenBy::Target => " (seen by the callee alone)",
        SeenBy::Local => " (a step inside of a process)",
    };
    out.line(format!(
        "   {} calls, {} failed, {} in all ({} of the requests){seen}",
        path.calls,
        path.errors,
        time(s.sum),
        format::share(path.share)
    ))?;
    out.line(format!(
        "   mean {}, p50 {}, p90 {}, p99 {}, most {}",
        time(s.mean),
        whole(s.p50),
        whole(s.p90),
        whole(s.p99),
        whole(s.max)
    ))?;
    if path.seen_by != SeenBy::Local {
        intervals(path, out)?;
        processes("made by", &path.origins, out)?;
        processes("served by", &path.targets, out)?;
    }
    for (count, what) in [
        (path.calls_without_target, "have no record of the process that served them"),
        (path.calls_without_origin, "have no record of the process that made them"),
    ] {
        if count > 0 {
            out.line(format!("   {count} calls {what}"))?;
        }
    }
    Ok(())
}

fn intervals(path: &PathProfile, out: &mut Out) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut unknown: Vec<(&str, Vec<&str>)> = Vec::new();
    for interval in &path.intervals {
        match &interval.time {
            IntervalTime::Measured { durations, share } => {
                let s = durations.summary();
                let name = match interval.part_of {
                    Some(_) => format!("     - {}", interval.name),
                    None => format!("     {}", interval.name),
                };
                rows.push(vec![name, time(s.mean), whole(s.p99), format::share(*share)]);
            }
            IntervalTime::Unknown { reason } => {
                match unknown.iter_mut().find(|(known, _)| known == reason) {
                    Some((_, names)) => names.push(interval.name),
                    None => unknown.push((reason, vec![interval.name])),
                }
            }
        }
    }
    match &path.unaccounted {
        Unaccounted::Measured { total_ns, share } => {
            let mean = total_ns / path.calls.max(1) as f64;
            rows.push(vec![
                "     unaccounted".into(),
                time(mean),
                String::new(),
                format::share(*share),
            ]);
        }
        Unaccounted::Unknown { reason } => {
            match unknown.iter_mut().find(|(known, _)| known == reason) {
                Some((_, names)) => names.push("unaccounted"),
                None => unknown.push((reason, vec!["unaccounted"])),
            }
        }
    }
    if !rows.is_empty() {
        rows.insert(0, ["     interval", "mean", "p99", "share"].map(str::to_owned).to_vec());
        out.table(&rows, &[1, 2, 3])?;
    }
    for (reason, names) in unknown {
        out.line(out.dim(&format!("     unknown: {} ({})", names.join(", "), printable(reason))))?;
    }
    Ok(())
}

fn processes(what: &str, calls: &[EntityCalls], out: &mut Out) -> Result<(), Failure> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (at, of) in calls.iter().take(MAX_PROCESSES).enumerate() {
        let head = if at == 0 { format!("     {what}") } else { String::new() };
        rows.push(vec![
            head,
            printable(&of.process),
            format!("{} calls", of.calls),
            time(of.mean_ns),
        ]);
    }
    if calls.len() > MAX_PROCESSES {
        rows.push(vec![String::new(), format!("and {} more", calls.len() - MAX_PROCESSES)]);
    }
    Ok(out.table(&rows, &[2, 3])?)
}
