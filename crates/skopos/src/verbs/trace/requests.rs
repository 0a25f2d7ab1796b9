//! `skopos trace requests`: a list of requests.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use skopos_model::duration;
use skopos_rpc::analysis::request::list::{DEFAULT_LIMIT, Filter, Order, Requests, requests};
use skopos_rpc::folder::Folder;
use skopos_term::format::printable;
use skopos_term::{Failure, Global, Out, Style};

use super::lines::{clock_bound, moment, whole};
use super::place::{failed, opened};

#[derive(Debug, Args)]
pub(crate) struct RequestsArgs {
    /// Only requests that take at least this long
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    over: Option<Duration>,
    /// Only requests with a call that failed
    #[arg(long)]
    failed: bool,
    /// Only requests with a call whose callpath contains this
    #[arg(long, value_name = "TEXT")]
    callpath: Option<String>,
    /// Only requests that a process touched whose name contains this
    #[arg(long, value_name = "TEXT")]
    process: Option<String>,
    /// Order
    #[arg(long, value_enum, default_value = "slowest")]
    sort: Sort,
    /// Most requests
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LIMIT as u64, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

/// The orders of the list of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    Slowest,
    Earliest,
    Latest,
}

pub(super) fn run(
    global: &Global,
    folder: &Folder,
    args: &RequestsArgs,
) -> Result<ExitCode, Failure> {
    let trace = opened(folder)?;
    let filter = Filter {
        callpath: args.callpath.clone(),
        process: args.process.clone(),
        at_least_ns: args.over.map_or(0, |over| u64::try_from(over.as_nanos()).unwrap_or(u64::MAX)),
        only_failed: args.failed,
        order: match args.sort {
            Sort::Slowest => Order::Slowest,
            Sort::Earliest => Order::Earliest,
            Sort::Latest => Order::Latest,
        },
        limit: usize::try_from(args.limit).unwrap_or(usize::MAX),
        most_held: 0,
    };
    let found = requests(&trace, &filter).map_err(|e| failed(&e))?;
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&found)?,
        Style::Plain => plain(&found, &mut out)?,
        Style::Human => human(&found, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each request: id, begin and duration in ns, calls, failed sides, processes, callpath.
fn plain(found: &Requests, out: &mut Out) -> Result<(), Failure> {
    for r in &found.requests {
        let (id, root) = (&r.id, printable(&r.root));
        let numbers = [r.duration_ns, r.calls, r.failed, r.processes].map(|n| n.to_string());
        out.line(format!("{id}\t{}\t{}\t{root}", r.start_ns, numbers.join("\t")))?;
    }
    Ok(())
}

fn human(found: &Requests, out: &mut Out) -> Result<(), Failure> {
    let head = ["request", "begin (UTC)", "duration", "calls", "failed", "processes", "callpath"];
    let rows = found.requests.iter().map(|r| {
        let root = printable(&r.root);
        let root =
            if r.is_incomplete { format!("{root} (its caller has no record)") } else { root };
        let numbers = [r.calls, r.failed, r.processes].map(|n| n.to_string());
        let mut row = vec![r.id.clone(), moment(r.start_ns), whole(r.duration_ns)];
        row.extend(numbers);
        row.push(root);
        row
    });
    let rows: Vec<Vec<String>> =
        [head.map(str::to_owned).to_vec()].into_iter().chain(rows).collect();
    out.table(&rows, &[2, 3, 4, 5])?;
    out.line(format!(
        "{} of {} requests that match, of {}; clocks agree within {}",
        found.requests.len(),
        found.matching,
        found.total,
        clock_bound(found.clock_bound_ns)
    ))?;
    for (count, what) in [
        (found.incomplete, "requests lack the record of their first caller"),
        (found.calls_left_out, "calls are left out: their requests have too many"),
    ] {
        if count > 0 {
            out.line(format!("{count} {what}"))?;
        }
    }
    Ok(())
}
