//! The data service: its cases, and what recording costs it. Its program measures, and its rows are taken as they are.

use std::path::Path;

use serde_json::Value as Json;

use super::printed::{printed, rounds};
use crate::plan::Plan;
use crate::programs;
use crate::report::{Better, Figure, Report, Row};

/// Verbs of the program with the words of a full and of a short run.
const RUNS: [(&str, &[&str], &[&str]); 2] = [
    ("cases", &["--rounds", "15"], &["--rounds", "1"]),
    ("overhead", &["--launches", "20"], &["--launches", "2", "--rounds", "3"]),
];

/// Names of bounds and predictions that rows of the program may have.
const BESIDE: [&str; 3] = ["low", "high", "predicted"];

/// Units of the program's rows.
const UNITS: [&str; 6] = ["s", "%", "us", "ns", "calls/s", ""];

/// Adds the rows; without the program one row says why they are unknown.
pub(super) fn add(report: &mut Report, plan: &Plan, folder: &Path) {
    for (verb, full, short) in RUNS {
        let options = if plan.is_short { short } else { full };
        let words: Vec<String> =
            [&[verb], options, &["--json"]].concat().into_iter().map(str::to_owned).collect();
        let program = programs::dataservice().map_err(|failure| failure.in_one_line());
        match program.and_then(|program| printed(&program, &words, folder)) {
            Ok(json) => take(report, &json),
            Err(reason) => report.add([Row::of(
                format!("data service, {verb}"),
                "result",
                "",
                Figure::Unknown(reason),
                Better::Neither,
            )]),
        }
    }
}

fn take(report: &mut Report, json: &Json) {
    let notes = json["notes"].as_array().into_iter().flatten().filter_map(Json::as_str);
    notes.for_each(|note| report.note(note.to_owned()));
    report.add(json["rows"].as_array().into_iter().flatten().map(row));
}

fn row(json: &Json) -> Row {
    let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
    let unit = UNITS.into_iter().find(|unit| json["unit"] == *unit).unwrap_or_default();
    let value = json["value"].as_f64();
    let value =
        value.map_or_else(|| Figure::Unknown("it was not measured".to_owned()), Figure::Known);
    let mut row = Row::of(text("case"), text("metric"), unit, value, Better::Neither);
    for name in BESIDE {
        if let Some(number) = json["peers"][name].as_f64() {
            row = row.beside(name, Figure::Known(number));
        }
    }
    if let Some(goal) = json["goal"].as_str() {
        row = row.judged_goal(goal.to_owned(), json["met"].as_bool());
    }
    row.rounds("skopos", &rounds(json, "/rounds/skopos"))
}
