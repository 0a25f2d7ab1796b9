//! `skopos trace show`: one request as a waterfall.

use std::process::ExitCode;

use skopos_rpc::analysis::request::show::{Request, ShownCall, show};
use skopos_rpc::analysis::request::waterfall::{WaterfallLine, waterfall};
use skopos_rpc::folder::Folder;
use skopos_term::format::printable;
use skopos_term::{Failure, Global, Out, Style};

use super::lines::{clock_bound, moment, whole};
use super::place::{failed, opened};

/// Columns of the numbers on the right of a waterfall.
const NUMBERS: usize = 24;

pub(super) fn run(global: &Global, folder: &Folder, id: &str) -> Result<ExitCode, Failure> {
    let trace = opened(folder)?;
    let request = show(&trace, id).map_err(|e| failed(&e))?;
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&request)?,
        Style::Plain => plain(&request, &mut out)?,
        Style::Human => human(&request, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each call: depth, name, origin, target, status, begin and duration in ns.
fn plain(request: &Request, out: &mut Out) -> Result<(), Failure> {
    for call in &request.calls {
        let text = |process: &Option<String>| printable(process.as_deref().unwrap_or_default());
        out.line(format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}",
            call.depth,
            printable(&call.name),
            text(&call.origin),
            text(&call.target),
            call.status,
            call.start_ns,
            call.duration_ns
        ))?;
    }
    Ok(())
}

fn human(request: &Request, out: &mut Out) -> Result<(), Failure> {
    out.line(format!(
        "request {} began at {} UTC and took {}; clocks agree within {}",
        request.id,
        moment(request.start_ns),
        whole(request.duration_ns),
        clock_bound(request.clock_bound_ns)
    ))?;
    let width = columns().saturating_sub(NUMBERS);
    for line in waterfall(request, width) {
        out.line(with_numbers(&line, &request.calls[line.call], width))?;
    }
    out.line(out.dim("- on the way   . in the queue   # in the handler   = one side alone"))?;
    for (count, what) in [
        (request.orphans, "calls have a parent without a record"),
        (request.duplicates, "records repeat a side"),
        (request.sides_left_out, "records are not shown"),
        (request.unrelated_processes, "processes have clocks that no call relates to the others"),
    ] {
        if count > 0 {
            out.line(format!("{count} {what}"))?;
        }
    }
    for call in request.calls.iter().filter(|call| !call.intervals.is_empty()) {
        let intervals: Vec<String> =
            call.intervals.iter().map(|(name, ns)| format!("{name} {}", whole(*ns))).collect();
        out.line(out.dim(&format!("{}: {}", printable(&call.name), intervals.join(", "))))?;
    }
    Ok(())
}

/// Returns the width of the terminal, or of a page if there is none.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(100)
}

fn with_numbers(line: &WaterfallLine, call: &ShownCall, width: usize) -> String {
    let picture = format!("{} {}", printable(&line.name), line.bar);
    let note = match (call.status, call.missing) {
        ("ok", None) => String::new(),
        ("ok", Some(side)) => format!("  no {side}"),
        (status, _) => format!("  {status}"),
    };
    let time = whole(call.duration_ns);
    format!("{picture:width$} {time:>9}{note}")
}
