//! `skopos watch --sql`: a standing question; prints the new rows whenever its answer changes.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use skopos_query::Limits;
use skopos_query::arrow::error::ArrowError;
use skopos_shm::now;

use super::watch_args::WatchArgs;
use skopos_hub::Change;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::find::open_host;
use skopos_term::format;
use skopos_term::{Out, Style, tell};

use super::sql::{Watching, cells};

pub(super) fn run(global: &Global, args: &WatchArgs, sql: &str) -> Result<ExitCode, Failure> {
    // A time beyond the range of the clock means no end.
    let end = args.run_for.and_then(|d| Instant::now().checked_add(d));
    let mut watching = watching(global, sql, args.every)?;
    let mut out = Out::new(global.style());
    let mut left = args.count;
    let mut has_head = false;
    while left != Some(0) {
        let patience = end.map(|end| end.saturating_duration_since(Instant::now()));
        if patience.is_some_and(|patience| patience.is_zero()) {
            break;
        }
        let Some(change) = watching.next(patience)? else { break };
        let shown = show(&mut out, &change, !std::mem::replace(&mut has_head, true));
        shown.map_err(|e| match e {
            ArrowError::IoError(_, e) => e.into(),
            e => Failure::new("the answer cannot be shown").because(&e),
        })?;
        out.flush()?;
        left = left.map(|n| n - 1);
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the hub of this machine if there is one: it knows everything that this process can read, and more.
fn watching(global: &Global, sql: &str, every: Option<Duration>) -> Result<Watching, Failure> {
    let deadline = Limits::default().deadline;
    {
        use skopos_hub::client::{Changes, answer_timeout, reach};
        let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
        match reach(&dir, answer_timeout(deadline)) {
            Ok(Some(stream)) => {
                return Ok(Watching::Hub(Changes::of(stream, sql, every, deadline)?));
            }
            Ok(None) => {}
            Err(hub) => {
                let host = super::sql::host_without(hub, global)?;
                return Watching::here([host, open_host(global)?], sql, every, deadline);
            }
        }
    }
    Watching::here([open_host(global)?, open_host(global)?], sql, every, deadline)
}

fn show(out: &mut Out, change: &Change, is_first: bool) -> Result<(), ArrowError> {
    let time = now();
    if out.style == Style::Json {
        change.write_json(time, out.writer())?;
        writeln!(out.writer())?;
        return Ok(());
    }
    let mut rows = Vec::new();
    for batch in &change.new {
        rows.extend(cells(batch, if out.style == Style::Plain { "" } else { "NULL" })?);
    }
    if out.style == Style::Plain {
        for row in &rows {
            out.line(format!("{}\t{}", time.as_nanos(), row.join("\t")))?;
        }
    } else {
        if is_first {
            let names = change.schema.fields().iter().map(|field| field.name().as_str());
            let head = names.collect::<Vec<_>>().join("  ");
            out.line(out.dim(&format!("{:12}  {head}", "time")))?;
        }
        let time = out.dim(&format::time_of_day(time));
        let mut table: Vec<Vec<String>> = rows;
        for row in &mut table {
            row.insert(0, time.clone());
        }
        out.table(&table, &[])?;
    }
    let (new, gone) =
        (change.new.iter().map(|b| b.num_rows()).sum::<usize>(), change.gone.num_rows());
    if gone > new {
        // A changed row counts as gone and as new; these rows are gone without a successor.
        let (rows, left) = (if gone - new == 1 { "row is" } else { "rows are" }, change.rows);
        tell(format!("{} {rows} gone, {left} left", gone - new));
    }
    Ok(())
}
