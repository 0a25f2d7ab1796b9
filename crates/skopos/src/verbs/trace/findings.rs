//! `skopos trace findings`: reasons why a service is slow, with the change that would help most.

use std::process::ExitCode;

use skopos_rpc::analysis::blocks::Estimate;
use skopos_rpc::analysis::finding::{
    Evidence, Findings, Fix, Found, Judged, NodeFact, NodeFacts, Verdict, judge,
};
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::folder::Folder;
use skopos_term::format::printable;
use skopos_term::{Failure, Global, Out, Style, format};

use super::lines::{callpath, time};
use super::place::{failed, heading, opened};
use crate::verbs::job::hub::{Hub, quoted};

/// Facts that tell a slow node from the others: its processors, memory, pressure and temperature.
const FACTS: [&str; 6] = [
    "cpu/total/busy_ratio",
    "load/load_1m",
    "mem/used_ratio",
    "psi/cpu/some_avg10_ratio",
    "psi/io/some_avg10_ratio",
    "psi/memory/some_avg10_ratio",
];

/// The processes of a fix that people see; `--json` has all.
const MAX_PROCESSES: usize = 6;

pub(super) fn run(global: &Global, folder: &Folder, all: bool) -> Result<ExitCode, Failure> {
    let trace = opened(folder)?;
    let found = judge(&trace, &node_facts(global, &trace)).map_err(|e| failed(&e))?;
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&found)?,
        Style::Plain => plain(&found, &mut out)?,
        Style::Human => human(&found, all, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the hub of this machine for facts of the nodes during the run. Without a hub there are none.
fn node_facts(global: &Global, trace: &Trace<'_>) -> NodeFacts {
    let mut nodes: Vec<&str> =
        trace.reader.processes.iter().map(|process| process.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.retain(|node| !node.is_empty());
    let Some(hub) = Hub::open(global).ok().filter(|_| nodes.len() > 1) else {
        return NodeFacts::default();
    };
    let topics: Vec<String> =
        nodes.iter().flat_map(|node| FACTS.map(|fact| quoted(&format!("{node}/{fact}")))).collect();
    let sql = format!(
        "SELECT topic, node, avg(value) AS mean FROM samples WHERE topic IN ({}) AND \
         time BETWEEN to_timestamp_nanos({}) AND to_timestamp_nanos({}) GROUP BY topic, node",
        topics.join(", "),
        trace.first,
        trace.last
    );
    let fact = |row: &crate::verbs::job::hub::Row| {
        let node = row.get("node")?.as_str()?;
        let name = row.get("topic")?.as_str()?.strip_prefix(node)?.trim_start_matches('/');
        let (node, name) = (node.to_owned(), name.to_owned());
        Some(NodeFact { node, name, value: row.get("mean")?.as_f64()? })
    };
    let rows = hub.rows(&sql).unwrap_or_else(|failure| {
        let why = failure.in_one_line();
        skopos_term::tell(format!("warning: {why}; findings lack the facts of the nodes"));
        Vec::new()
    });
    NodeFacts { facts: rows.iter().filter_map(fact).collect() }
}

/// A line for each rule: name, verdict, share that the best change saves with its interval, text.
fn plain(found: &Findings, out: &mut Out) -> Result<(), Failure> {
    for judged in &found.findings {
        let line = match &judged.verdict {
            Verdict::Found(f) => {
                let Estimate { value, low, high } = f.saves;
                format!("found\t{value}\t{low}\t{high}\t{}", printable(&f.what))
            }
            Verdict::Absent => "absent\t\t\t\t".to_owned(),
            Verdict::Unknown { reason } => format!("unknown\t\t\t\t{}", printable(reason)),
        };
        out.line(format!("{}\t{line}", judged.finding))?;
    }
    Ok(())
}

fn human(found: &Findings, all: bool, out: &mut Out) -> Result<(), Failure> {
    let (mut rank, mut absent, mut unknown) = (0, Vec::new(), Vec::new());
    for judged in &found.findings {
        match &judged.verdict {
            Verdict::Found(f) => {
                rank += 1;
                one(rank, judged, f, out)?;
            }
            Verdict::Absent => absent.push(judged.finding),
            Verdict::Unknown { reason } => unknown.push((judged.finding, reason)),
        }
    }
    if rank == 0 {
        out.line("No rule found a reason why the service is slow.")?;
    }
    if !absent.is_empty() {
        out.line(format!("absent: {}", absent.join(", ")))?;
    }
    if all {
        for (finding, reason) in unknown {
            out.line(format!("unknown: {finding}: {}", printable(reason)))?;
        }
    } else if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(|(finding, _)| *finding).collect();
        out.line(format!("cannot be judged: {} (--all has the reasons)", names.join(", ")))?;
    }
    Ok(())
}

fn one(rank: usize, judged: &Judged, found: &Found, out: &mut Out) -> Result<(), Failure> {
    heading(out, &format!("{rank}. {}: {}", judged.finding, printable(&found.what)))?;
    if !found.callpath.is_empty() {
        out.line(format!("   callpath: {}", callpath(&found.callpath)))?;
    }
    let evidence: Vec<String> = found.evidence.iter().map(number).collect();
    out.line(format!("   evidence: {}", evidence.join("; ")))?;
    for fix in &found.fixes {
        change(fix, out)?;
    }
    if !found.processes.is_empty() {
        let mut names: Vec<String> =
            found.processes.iter().take(MAX_PROCESSES).map(|name| printable(name)).collect();
        if found.processes.len() > MAX_PROCESSES {
            names.push(format!("and {} more", found.processes.len() - MAX_PROCESSES));
        }
        out.line(format!("   of: {}", names.join(", ")))?;
    }
    out.line(format!("   advice: {}", judged.advice))?;
    Ok(out.line("")?)
}

fn change(fix: &Fix, out: &mut Out) -> Result<(), Failure> {
    let now = fix.now.as_ref().map_or(String::new(), |now| format!(" (now {})", printable(now)));
    let gain = match &fix.gain {
        Some(gain) => {
            let [value, low, high] = [gain.value, gain.low, gain.high].map(|share| 100.0 * share);
            format!("saves {value:.1} % of the callpath's time ({low:.1} to {high:.1})")
        }
        None => "a gain that no model predicts".to_owned(),
    };
    let (key, value) = (printable(&fix.key), printable(&fix.value));
    out.line(format!("   change: {key} = {value}{now}: {gain}"))?;
    out.line(out.dim(&format!("           model: {}", fix.model)))?;
    Ok(())
}

fn number(evidence: &Evidence) -> String {
    let value = match evidence.unit {
        "ns" => time(evidence.value),
        "bytes" => format::bytes(evidence.value),
        "share" => format::share(evidence.value),
        _ => format!("{}", (evidence.value * 100.0).round() / 100.0),
    };
    format!("{} {value}", printable(&evidence.name))
}
