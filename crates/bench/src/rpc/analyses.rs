//! The time and the memory of analyses, as the program `skopos` does them on a trace on disk.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use skopos_rpc::analysis::loader::Loader as _;
use skopos_rpc::synthetic::Service;
use skopos_term::Failure;

use super::printed::PATIENCE;
use crate::child::{finish, peak_bytes};
use crate::plan::Plan;
use crate::programs;
use crate::report::{Better, Figure, Goal, Report, Row};
use crate::stats::median;

/// Records of the trace whose analyses have a goal: the size of the paper's.
const RECORDS: u64 = 1_000_000;

/// Spans of the large trace, in full and in short runs. Each has one record.
const LARGE_SPANS: [u64; 2] = [100_000_000, 2_000_000];

/// Records of a request with details, and spans of a request.
const RECORDS_OF_REQUEST: u64 = 16;
const SPANS_OF_REQUEST: u64 = 8;

/// The most memory of an analysis of the large trace: 4 GiB.
const MEMORY_GOAL: f64 = 4.294_967_296e9;

/// Analyses with the seconds that the paper's scripts took, as words of `skopos trace`.
const ANALYSES: [(&str, &[&str], Option<f64>); 5] = [
    ("profile", &["profile"], Some(35.0)),
    ("requests", &["requests"], Some(481.0)),
    ("system", &["system"], None),
    ("critical-path", &["critical-path"], None),
    ("findings", &["findings"], None),
];

/// Adds the rows of the analyses and of the export.
pub(super) fn add(report: &mut Report, plan: &Plan, scratch: &Path) -> Result<(), Failure> {
    report.note(
        "analyses: each is one run of `skopos trace`, with its start and the reading of all files; the trace is made \
         by a simulated service and lies in the page cache; the paper's numbers are those of its own machine"
            .to_owned(),
    );
    let skopos = programs::skopos()?;
    let folder = scratch.join("trace");
    let spans =
        write(&Service { requests: RECORDS / RECORDS_OF_REQUEST, ..Service::default() }, &folder)?;
    let run = |words: &[&str]| timed(&skopos, &folder, words, scratch);
    for (name, words, theirs) in ANALYSES {
        let times: Result<Vec<f64>, String> = (0..plan.rounds).map(|_| run(words)).collect();
        let mut row = row(
            &times,
            format!("analysis of {RECORDS} records: {name}"),
            "time",
            "s",
            Better::Lower,
        );
        if name != "findings" && name != "critical-path" {
            row = row.goal(Goal::AtMost(1.0));
        }
        if let Some(theirs) = theirs {
            row = row.beside("paper", Figure::Known(theirs));
        }
        report.add([row]);
    }
    let out = scratch.join("zipkin.json");
    let words = ["export", "--format", "zipkin", "--out", &out.to_string_lossy()];
    let rates: Result<Vec<f64>, String> =
        (0..plan.rounds).map(|_| run(&words).map(|seconds| spans as f64 / seconds)).collect();
    let rate = row(&rates, "Zipkin export".to_owned(), "rate", "spans/s", Better::Higher);
    report.add([rate.goal(Goal::AtLeast(500_000.0))]);
    remove(&folder);
    large(report, plan, (&skopos, scratch))
}

/// Adds the memory of a profile of the large trace.
fn large(
    report: &mut Report,
    plan: &Plan,
    (skopos, scratch): (&Path, &Path),
) -> Result<(), Failure> {
    let spans = LARGE_SPANS[usize::from(plan.is_short)];
    plan.say(&format!("a trace of {spans} spans …"));
    let folder = scratch.join("large");
    let service =
        Service { requests: spans / SPANS_OF_REQUEST, has_details: false, ..Service::default() };
    write(&service, &folder)?;
    for words in [&["profile"][..], &["requests"], &["findings"]] {
        let peak = peak_bytes(trace(skopos, &folder, words), scratch, PATIENCE);
        let peak = peak.map_or_else(Figure::Unknown, |bytes| Figure::Known(bytes as f64));
        let case = format!("analysis of {spans} spans: {}", words[0]);
        let row = Row::of(case, "peak memory", "bytes", peak, Better::Lower);
        report.add([row.goal(Goal::AtMost(MEMORY_GOAL))]);
    }
    remove(&folder);
    Ok(())
}

/// Writes the trace of a service into a new folder, and returns the number of its spans.
fn write(service: &Service, folder: &Path) -> Result<u64, Failure> {
    let failed = |e: std::io::Error| {
        Failure::new(format!("{}: the trace cannot be written", folder.display())).because(&e)
    };
    fs::create_dir_all(folder).map_err(failed)?;
    let trace = service.trace();
    for (name, bytes) in trace.names().iter().zip(trace.files()) {
        fs::write(folder.join(name), bytes).map_err(failed)?;
    }
    Ok(service.requests * SPANS_OF_REQUEST)
}

/// Removes a trace; what stays is removed with the scratch folder.
fn remove(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
}

fn trace(skopos: &Path, folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(skopos);
    command.arg("trace").arg("--trace").arg(folder).args(words);
    command
}

/// Returns the seconds of one analysis.
fn timed(skopos: &Path, folder: &Path, words: &[&str], scratch: &Path) -> Result<f64, String> {
    let begun = Instant::now();
    finish(&mut trace(skopos, folder, words), scratch, PATIENCE)?;
    Ok(begun.elapsed().as_secs_f64())
}

fn row(
    rounds: &Result<Vec<f64>, String>,
    case: String,
    metric: &str,
    unit: &'static str,
    better: Better,
) -> Row {
    match rounds {
        Ok(rounds) => Row::new(case, metric, unit, median(rounds), better).rounds("skopos", rounds),
        Err(reason) => Row::of(case, metric, unit, Figure::Unknown(reason.clone()), better),
    }
}
