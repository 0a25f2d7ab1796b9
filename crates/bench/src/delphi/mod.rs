//! `skopos-bench delphi`: the errors of predictions of the next value, beside the last value, a line,
//! and an LSTM that was trained on the same trace.
//!
//! The prediction is one step ahead, as in the paper: the next sample is predicted from the samples
//! so far, and then observed. The second half of each trace is judged. In the first half the LSTM is
//! trained and Delphi observes.

mod synthetic;
mod lstm;
mod judged;
mod groups;
mod cost;

use std::fs;
use std::path::Path;

use skopos_model::Kind;
use skopos_score::delphi::{Errors, Model, evaluate};
use skopos_score::trace::Trace;

use super::machine::Machine;
use super::report::{Better, Figure, Goal, Report, Row};
use crate::plan::Plan;
use judged::{Judged, geometric_mean};
use lstm::Lstm;
use skopos_score::trace::{instant, kind_of};
use skopos_term::Failure;

/// The folder of recorded traces, in the repository's root.
pub(super) const TRACES: &str = "bench/traces";

/// The greatest depth of nested folders of traces.
pub(super) const DEPTH: usize = 4;

/// The fewest samples of a trace that is judged.
const SHORTEST: usize = 40;

/// The goal with fallback: the greatest ratio to the error of the better of last value and linear.
const WORST_RATIO: f64 = 1.02;

/// Runs every case.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::new("delphi", Machine::this());
    report.note(format!("Delphi has {}", Model::built_in()));
    report.note(
        "one step ahead; judged on the second half of each trace; the LSTM (71,851 parameters, \
         bench/lstm) was trained on the first, Delphi on no trace at all",
    );
    let made_up = synthetic::traces();
    let mut judged: Vec<Judged> = Vec::new();
    for trace in &made_up {
        judged.extend(judge(&trace.topic, None, trace, Kind::Gauge));
    }
    let mut recorded = Vec::new();
    read_traces(Path::new(TRACES), DEPTH, &mut recorded)?;
    if recorded.is_empty() {
        report.note(format!("no recorded traces: there is no {TRACES} here"));
    }
    recorded.sort_by(|a, b| a.name.cmp(&b.name));
    for Recorded { group, name, trace } in &recorded {
        judged.extend(judge(name, Some(group), trace, kind_of(&trace.topic)));
    }
    let lstm = Lstm::read();
    for case in &judged {
        report.add(rows(case, &lstm));
    }
    report.add(summary(&judged));
    report.add(groups::rows(&judged, &lstm));
    plan.say("cost …");
    // On a sine the model is shown, which is the most expensive case.
    if let Some(sine) = made_up.get(1) {
        cost::measure(plan, sine, &lstm, &mut report);
    }
    Ok(report)
}

fn judge(name: &str, group: Option<&str>, trace: &Trace, kind: Kind) -> Option<Judged> {
    if trace.samples.len() < SHORTEST {
        return None;
    }
    let samples: Vec<_> = trace.samples.iter().map(|(t, v)| (instant(*t), *v)).collect();
    let result = evaluate(kind, &samples, samples.len() / 2)?;
    let group = group.map(str::to_owned);
    Some(Judged { name: name.to_owned(), group, unit: trace.unit.clone(), result })
}

/// A recorded trace.
pub(super) struct Recorded {
    /// The name of its folder.
    pub(super) group: String,
    pub(super) name: String,
    pub(super) trace: Trace,
}

/// Reads every `.csv` file below `dir`; there are no traces without the directory.
pub(super) fn read_traces(
    dir: &Path,
    depth: usize,
    found: &mut Vec<Recorded>,
) -> Result<(), Failure> {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && depth > 0 {
            read_traces(&path, depth - 1, found)?;
        } else if path.extension().is_some_and(|e| e == "csv") {
            let failed = |e: &dyn std::error::Error| {
                Failure::new(format!("cannot read {}", path.display())).because(e)
            };
            let text = fs::read_to_string(&path).map_err(|e| failed(&e))?;
            let trace = Trace::parse(&text).map_err(|e| failed(&e))?;
            let text = |part: Option<&std::ffi::OsStr>| {
                part.unwrap_or_default().to_string_lossy().into_owned()
            };
            let (group, name) = (text(dir.file_name()), text(path.file_stem()));
            found.push(Recorded { group, name, trace });
        }
    }
    Ok(())
}

fn rows(case: &Judged, lstm: &Lstm) -> Vec<Row> {
    let Judged { name, unit, result, .. } = case;
    // Units in rows are words of the program.
    let unit = ["bytes", "bytes/s", "seconds", "ratio", "1/s"]
        .into_iter()
        .find(|known| known == unit)
        .unwrap_or("");
    let row = |metric: &str, unit, better, of: &dyn Fn(&Errors) -> Option<f64>, theirs| {
        let ours = of(&result.shown)?;
        let peers = [
            ("delphi", &result.delphi),
            ("as trained", &result.trained),
            ("last value", &result.last_value),
            ("linear", &result.linear),
        ];
        let row = Row::new(name, metric, unit, ours, better).peer("lstm", theirs);
        Some(peers.into_iter().fold(row, |row, (peer, errors)| match of(errors) {
            Some(error) => row.peer(peer, Figure::Known(error)),
            None => row,
        }))
    };
    let theirs = |of: fn(&lstm::Result) -> Option<f64>| lstm.figure(name, of);
    let mae = row("MAE", unit, Better::Lower, &|e| Some(e.mae), theirs(|r| Some(r.mae)));
    let rmse = row("RMSE", unit, Better::Lower, &|e| Some(e.rmse), theirs(|r| Some(r.rmse)));
    let r2 = row("R²", "", Better::Neither, &|e| e.r2, theirs(|r| r.r2));
    let ratio = Row::new(
        name,
        "MAE ÷ better of last value and linear",
        "times",
        case.ratio(),
        Better::Neither,
    );
    let ratio = ratio.goal(Goal::AtMost(WORST_RATIO));
    let coverage = result
        .coverage
        .map(|share| Row::new(name, "coverage of the bound", "ratio", share, Better::Neither));
    [mae, Some(ratio), rmse, r2, coverage].into_iter().flatten().collect()
}

fn summary(judged: &[Judged]) -> Vec<Row> {
    let share = |holds: &dyn Fn(&Judged) -> bool| {
        judged.iter().filter(|case| holds(case)).count() as f64 / judged.len() as f64
    };
    let case = "all traces";
    let row = |metric: &str, unit, value| Row::new(case, metric, unit, value, Better::Neither);
    let count = judged.len() as f64;
    // No method can be better than one without an error.
    let beatable: Vec<&Judged> = judged.iter().filter(|case| case.best() > 0.0).collect();
    let beaten = beatable.iter().filter(|case| case.ratio() < 1.0).count() as f64;
    let coverages: Vec<f64> = judged.iter().filter_map(|case| case.result.coverage).collect();
    let covered = coverages.iter().sum::<f64>() / coverages.len() as f64;
    vec![
        row("number", "", count),
        row(
            "at most 2 % worse than the better of both",
            "share",
            share(&|c| c.ratio() <= WORST_RATIO),
        )
        .goal(Goal::AtLeast(1.0)),
        row("better than both", "share", share(&|c| c.ratio() < 1.0)).goal(Goal::AtLeast(0.5)),
        row("exactly as good as the better of both", "share", share(&|c| c.ratio() == 1.0)),
        row(
            "one of both makes no error, so that nobody can be better",
            "",
            count - beatable.len() as f64,
        ),
        row("better than both, of the others", "share", beaten / beatable.len() as f64),
        row(
            "geometric mean of MAE ÷ better of both",
            "times",
            geometric_mean(judged.iter().map(Judged::ratio)),
        ),
        row("mean coverage of the bound", "ratio", covered).goal(Goal::AtLeast(0.88)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn case(value: impl Fn(u32) -> f64) -> Judged {
        let samples = (0..400).map(|i| (Duration::from_secs(i.into()), value(i))).collect();
        let trace = Trace { samples, ..Trace::default() };
        judge("case", None, &trace, Kind::Gauge).expect("it is long enough")
    }

    #[test]
    fn unbeatable_traces_count_in_the_goal_and_are_reported_beside_it() {
        let constant = case(|_| 42.0);
        let ramp = case(|i| 10.0 * f64::from(i));
        let sine = case(|i| (0.1 * f64::from(i)).sin());
        // It cannot be learnt from the samples so far, and it is not zero.
        let rare = case(|i| if i < 390 { 0.0 } else { 1.0 });
        let rows = summary(&[constant, ramp, sine, rare]);
        let rows = serde_json::to_value(rows).expect("rows are data");
        let check = |metric: &str, expected: f64| {
            let found = rows.as_array().into_iter().flatten().find(|row| row["metric"] == metric);
            assert_eq!(found.and_then(|row| row["value"].as_f64()), Some(expected), "{metric}");
        };
        check("better than both", 0.25);
        check("exactly as good as the better of both", 0.75);
        check("one of both makes no error, so that nobody can be better", 2.0);
        check("better than both, of the others", 0.5);
    }
}
