//! The cost of recording a call: Skopos, OpenTelemetry, fastrace and `tracing-opentelemetry` in one process.

use std::path::Path;

use serde_json::Value as Json;

use super::printed::{number, printed, rounds};
use crate::plan::Plan;
use crate::programs;
use crate::report::{Better, Figure, Goal, Report, Row};

/// Rounds of a full and of a short run.
const ROUNDS: [usize; 2] = [21, 3];

/// Variants of the program, and the names of their columns.
const PEERS: [(&str, &str); 3] = [
    ("opentelemetry, batch", "opentelemetry"),
    ("fastrace", "fastrace"),
    ("tracing-opentelemetry, batch", "tracing-opentelemetry"),
];

/// The most nanoseconds of the caller, of the process, and of a caller while recording is off.
const GOALS: [f64; 3] = [50.0, 100.0, 2.0];

/// The most processor time that recording adds to an echo by tonic, in percent.
const ECHO_GOAL: f64 = 2.0;

/// Adds the rows; what cannot be measured is unknown, with the reason.
pub(super) fn add(report: &mut Report, plan: &Plan, folder: &Path) {
    let rounds = ROUNDS[usize::from(plan.is_short)];
    report.note(format!(
        "recorders: {rounds} rounds; all take turns in one process, in another order in each round; peers hand \
         their spans to a sink that drops them, and Skopos writes its trace to a disk"
    ));
    let run = |what: &str| -> Result<Json, String> {
        let program = programs::recorders().map_err(|failure| failure.in_one_line())?;
        printed(&program, &[what.to_owned(), rounds.to_string()], folder)
    };
    report.add(spans(run("span")));
    report.add(echoes(run("echo")));
}

/// Returns the row of a name in the result, or the reason why there is none.
fn of<'j>(result: &'j Result<Json, String>, name: &str) -> Result<&'j Json, String> {
    let json = result.as_ref().map_err(Clone::clone)?;
    let all = json["rows"].as_array().ok_or("the result has no rows")?;
    let found = all.iter().find(|row| row["name"] == name);
    found.ok_or_else(|| format!("the result has no `{name}`"))
}

fn figure(row: &Result<&Json, String>, pointer: &str) -> Figure {
    row.as_ref().map_or_else(|reason| Figure::Unknown(reason.clone()), |row| number(row, pointer))
}

fn spans(result: Result<Json, String>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (case, name, goals) in [
        ("request with one span", "skopos, spans", Some(&GOALS[..2])),
        (
            "request with one span and two intervals",
            "skopos, full with two intervals",
            Some(&GOALS[..2]),
        ),
        ("request, recording off", "skopos, off", None),
    ] {
        let ours = of(&result, name);
        for (at, (metric, key)) in
            [("caller", "caller"), ("whole process", "process")].iter().enumerate()
        {
            let pointer = format!("/{key}_ns/median");
            let mut row = Row::of(
                case,
                format!("processor time, {metric}"),
                "ns",
                figure(&ours, &pointer),
                Better::Lower,
            );
            if let Some(goals) = goals {
                row = row.goal(Goal::AtMost(goals[at]));
                for (variant, peer) in PEERS {
                    row = row.peer(peer, figure(&of(&result, variant), &pointer));
                }
            } else if *key == "caller" {
                row = row.goal(Goal::AtMost(GOALS[2]));
            }
            for (bound, low_or_high) in [("low", "low"), ("high", "high")] {
                row = row.beside(bound, figure(&ours, &format!("/{key}_ns/{low_or_high}")));
            }
            if let Ok(ours) = ours {
                row = row.rounds("skopos", &rounds(ours, &format!("/{key}_rounds")));
            }
            rows.push(row);
        }
    }
    rows
}

fn echoes(result: Result<Json, String>) -> Vec<Row> {
    let theirs = of(&result, "opentelemetry, server");
    let mut rows = Vec::new();
    for (case, name, is_ours) in [
        ("tonic echo, nothing recorded, again", "off, again", false),
        ("tonic echo, server records", "skopos, server", true),
        ("tonic echo, server and client record", "skopos, server and client", true),
    ] {
        let ours = of(&result, name);
        for (metric, key) in [
            ("more processor time", "cpu_more_percent"),
            ("throughput lost", "throughput_less_percent"),
        ] {
            let pointer = format!("/{key}/median");
            let mut row = Row::of(case, metric, "%", figure(&ours, &pointer), Better::Neither);
            row = row.beside("low", figure(&ours, &format!("/{key}/low")));
            row = row.beside("high", figure(&ours, &format!("/{key}/high")));
            if is_ours {
                row = row.goal(Goal::AtMost(ECHO_GOAL));
            }
            if name == "skopos, server" {
                row = row.beside("opentelemetry", figure(&theirs, &pointer));
            }
            rows.push(row);
        }
    }
    rows
}
