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

/// The most nanoseconds of the caller, and of the process.
const GOALS: [f64; 2] = [50.0, 100.0];

/// The most nanoseconds of a caller while recording is off, beyond the loop that calls it.
const OFF_GOAL: f64 = 2.0;

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

/// Metrics of a request with their keys in the result.
const CALLER: (&str, &str) = ("processor time, caller", "caller");
const PROCESS: (&str, &str) = ("processor time, whole process", "process");
const BEYOND: (&str, &str) = ("processor time, caller, beyond an empty request", "beyond");

fn spans(result: Result<Json, String>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (case, name) in [
        ("request with one span", "skopos, spans"),
        ("request with one span and two intervals", "skopos, full with two intervals"),
    ] {
        for (metric, goal) in [CALLER, PROCESS].into_iter().zip(GOALS) {
            let mut row = request(&result, case, name, metric).goal(Goal::AtMost(goal));
            for (variant, peer) in PEERS {
                let pointer = format!("/{}_ns/median", metric.1);
                row = row.peer(peer, figure(&of(&result, variant), &pointer));
            }
            rows.push(row);
        }
    }
    for (case, name) in [
        ("request, recording off", "skopos, off"),
        ("request, recording off, host looks at the stage", "skopos, off, a look at the stage"),
    ] {
        rows.push(request(&result, case, name, CALLER));
        rows.push(request(&result, case, name, BEYOND).goal(Goal::AtMost(OFF_GOAL)));
        rows.push(request(&result, case, name, PROCESS));
    }
    rows
}

/// Returns the row of one metric of a variant of ours, with its interval and its rounds.
fn request(
    result: &Result<Json, String>,
    case: &str,
    name: &str,
    (metric, key): (&str, &str),
) -> Row {
    let ours = of(result, name);
    let at = |place: &str| figure(&ours, &format!("/{key}_ns/{place}"));
    let mut row = Row::of(case, metric, "ns", at("median"), Better::Lower);
    for bound in ["low", "high"] {
        row = row.beside(bound, at(bound));
    }
    if let Ok(ours) = &ours {
        row = row.rounds("skopos", &rounds(ours, &format!("/{key}_rounds")));
    }
    row
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_goal_of_recording_off_is_that_beyond_an_empty_request() {
        let median = |value: f64| json!({"median": value, "low": value, "high": value});
        let off = |name: &str, beyond: f64| {
            json!({
                "name": name,
                "caller_ns": median(7.5),
                "beyond_ns": median(beyond),
                "process_ns": median(40.0),
            })
        };
        let result = json!({
            "rows": [off("skopos, off", 4.0), off("skopos, off, a look at the stage", 0.5)]
        });
        let rows = serde_json::to_value(spans(Ok(result))).expect("rows");
        let judged: Vec<_> = rows
            .as_array()
            .expect("a list")
            .iter()
            .filter(|row| row["case"].as_str().is_some_and(|case| case.contains("off")))
            .map(|row| (row["value"].as_f64(), row["met"].as_bool()))
            .collect();
        let all = [(7.5, None), (4.0, Some(false)), (40.0, None), (7.5, None), (0.5, Some(true))];
        assert_eq!(judged[..5], all.map(|(value, met)| (Some(value), met)));
    }
}
