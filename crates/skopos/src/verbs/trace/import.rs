//! `skopos trace import`: statistics that Margo's own monitor wrote.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use skopos_rpc::import::margo::{MargoStats, Operation, parse};
use skopos_term::format::printable;
use skopos_term::{Failure, Global, Out, Style, format, tell};

use super::lines::time;
use super::place::failed;

/// The longest file that is read: a hundred thousand RPCs have 60 MB.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The operations that people see; `--json` has all.
const MAX_OPERATIONS: usize = 30;

pub(super) fn run(global: &Global, path: &Path) -> Result<ExitCode, Failure> {
    let found = parse(&path.display().to_string(), &read(path)?).map_err(|e| failed(&e))?;
    for (count, what) in [
        (found.overflowed_counts, "counts did not fit 32 bits, and are computed from sum and mean"),
        (found.malformed, "entries do not have the form of a statistic"),
    ] {
        if count > 0 {
            tell(format!("skopos: {count} {what}"));
        }
    }
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&found)?,
        Style::Plain => plain(&found, &mut out)?,
        Style::Human => human(&found, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<String, Failure> {
    let failure = || Failure::new(format!("{}: cannot be read", path.display()));
    let file = File::open(path).map_err(|e| failure().because(&e))?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|e| failure().because(&e).hint("Margo writes such files as `*.stats.json`"))?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(failure().hint("it has more than 256 MiB")),
        false => Ok(text),
    }
}

/// A line for each operation: RPC, caller, side, peer, name, count, mean, deviation, greatest value.
fn plain(found: &MargoStats, out: &mut Out) -> Result<(), Failure> {
    for o in &found.operations {
        let s = &o.statistic;
        let deviation = s.variance.map_or(String::new(), |variance| variance.sqrt().to_string());
        let caller = printable(o.caller.as_deref().unwrap_or_default());
        let names = [&o.rpc, &caller, o.side, &o.peer, &o.name].map(printable).join("\t");
        out.line(format!("{names}\t{}\t{}\t{deviation}\t{}", s.count, s.mean, s.max))?;
    }
    Ok(())
}

fn human(found: &MargoStats, out: &mut Out) -> Result<(), Failure> {
    let pid = found.pid.map_or(String::new(), |pid| format!(", process {pid}"));
    out.line(format!("{} on {}{pid}", printable(&found.address), printable(&found.hostname)))?;
    let head = ["rpc", "side", "operation", "count", "mean", "deviation", "most", "interval"];
    let rows = found.operations.iter().take(MAX_OPERATIONS).map(row);
    let rows: Vec<Vec<String>> =
        [head.map(str::to_owned).to_vec()].into_iter().chain(rows).collect();
    out.table(&rows, &[3, 4, 5, 6])?;
    if found.operations.len() > MAX_OPERATIONS {
        out.line(format!(
            "and {} operations with less time",
            found.operations.len() - MAX_OPERATIONS
        ))?;
    }
    Ok(())
}

fn row(o: &Operation) -> Vec<String> {
    let s = &o.statistic;
    let amount = |value: f64| match o.name.ends_with("size") {
        true => format::bytes(value),
        false => time(1e9 * value),
    };
    let rpc = match &o.caller {
        Some(caller) => format!("{caller} → {}", o.rpc),
        None => o.rpc.clone(),
    };
    let count =
        if s.is_count_computed { format!("{} (computed)", s.count) } else { s.count.to_string() };
    vec![
        printable(&rpc),
        o.side.to_owned(),
        printable(&o.name),
        count,
        amount(s.mean),
        s.variance.map_or("unknown".to_owned(), |variance| amount(variance.sqrt())),
        amount(s.max),
        o.interval.unwrap_or_default().to_owned(),
    ]
}
