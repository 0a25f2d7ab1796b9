//! The data service: its cases, and what recording costs it, beside OpenTelemetry. Its program measures, and its rows are
//! taken as they are.

use std::path::Path;

use serde_json::Value as Json;

use super::collector::{Collector, Taken};
use super::printed::{printed, rounds};
use crate::plan::Plan;
use crate::programs;
use crate::report::{Better, Figure, Report, Row};

/// Words of the cases in a full and in a short run.
const CASES: [&[&str]; 2] = [&["--rounds", "15"], &["--rounds", "1"]];

/// Words of the overhead in a full and in a short run.
const OVERHEAD: [&[&str]; 2] = [&["--launches", "20"], &["--launches", "2", "--rounds", "3"]];

/// Names of bounds and predictions that rows of the program may have.
const BESIDE: [&str; 3] = ["low", "high", "predicted"];

/// Units of the program's rows.
const UNITS: [&str; 6] = ["s", "%", "us", "ns", "calls/s", ""];

/// The case of rows about OpenTelemetry's collector.
const BESIDE_CASE: &str = "data service, opentelemetry";

/// Adds the rows; without the program one row says why they are unknown.
pub(super) fn add(report: &mut Report, plan: &Plan, folder: &Path) {
    let short = usize::from(plan.is_short);
    let ours = |verb: &str, options: &[&str]| {
        let program = programs::dataservice().map_err(|failure| failure.in_one_line())?;
        printed(&program, &words(verb, options), folder)
    };
    add_all(report, "cases", ours("cases", CASES[short]));
    plan.say("the overhead of recording in the data service …");
    match beside(OVERHEAD[short], folder) {
        Ok((json, taken)) => {
            report.add(collected(&taken, spans(&json)));
            add_all(report, "overhead", Ok(json));
        }
        Err(reason) => {
            report.add([unknown(BESIDE_CASE, reason)]);
            add_all(report, "overhead", ours("overhead", OVERHEAD[short]));
        }
    }
}

fn words(verb: &str, options: &[&str]) -> Vec<String> {
    [&[verb], options, &["--json"]].concat().into_iter().map(str::to_owned).collect()
}

/// Measures the overhead with the program that has OpenTelemetry's SDK, whose spans go to its collector, and returns what the
/// collector took. All variants are services of that one program.
fn beside(options: &[&str], folder: &Path) -> Result<(Json, Taken), String> {
    let mut collector = Collector::start(folder)?;
    let program = programs::recorders().map_err(|failure| failure.in_one_line())?;
    let mut words = words("overhead", options);
    words.extend(["--collector".to_owned(), collector.address.clone()]);
    let before = collector.cpu()?;
    let json = printed(&program, &words, folder)?;
    let taken = collector.took(spans(&json), before)?;
    Ok((json, taken))
}

/// The spans that OpenTelemetry made in all variants.
fn spans(json: &Json) -> u64 {
    let rows = json["rows"].as_array().into_iter().flatten();
    let made = rows.filter(|row| row["metric"] == "spans").filter_map(|row| row["value"].as_f64());
    made.sum::<f64>() as u64
}

fn collected(taken: &Taken, sent: u64) -> [Row; 2] {
    let row =
        |metric: &str, unit, value| Row::of(BESIDE_CASE, metric, unit, value, Better::Neither);
    [
        row("spans that the collector took", "%", taken.arrived(sent)),
        row("processor time for a span, collector", "us", taken.cost()),
    ]
}

/// Adds the rows of a verb of the program, or one that says why there are none.
fn add_all(report: &mut Report, verb: &str, json: Result<Json, String>) {
    match json {
        Ok(json) => take(report, &json),
        Err(reason) => report.add([unknown(&format!("data service, {verb}"), reason)]),
    }
}

fn unknown(case: &str, reason: String) -> Row {
    Row::of(case, "result", "", Figure::Unknown(reason), Better::Neither)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_spans_that_arrived_are_compared_with_those_of_all_variants() {
        let row = |metric: &str, value: u64| json!({"metric": metric, "value": value});
        let json = json!({"rows": [row("spans", 300), row("records", 1000), row("spans", 100)]});
        assert_eq!(spans(&json), 400);
        let taken = Taken { spans: 399, seconds: 0.000_798 };
        let rows = collected(&taken, spans(&json));
        let [arrived, cost] = rows.map(|row| serde_json::to_value(row).expect("a row"));
        assert_eq!((&arrived["value"], &arrived["unit"]), (&json!(99.75), &json!("%")));
        assert_eq!((&cost["value"], &cost["unit"]), (&json!(2.0), &json!("us")));
    }
}
