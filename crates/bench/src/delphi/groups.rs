//! The recorded traces by group, the folders of `bench/traces`: how good the predictions are in each.

use super::judged::{Judged, Method, geometric_mean};
use super::lstm::Lstm;
use crate::report::{Better, Figure, Row};

/// Rows of each group of recorded traces, and of all of them.
pub(super) fn rows(judged: &[Judged], lstm: &Lstm) -> Vec<Row> {
    let recorded: Vec<&Judged> = judged.iter().filter(|case| case.group.is_some()).collect();
    let mut groups: Vec<&str> = recorded.iter().filter_map(|case| case.group.as_deref()).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut rows = Vec::new();
    for group in groups {
        let cases: Vec<&Judged> =
            recorded.iter().filter(|case| case.group.as_deref() == Some(group)).copied().collect();
        rows.extend(of_group(&format!("traces of {group}"), &cases, lstm));
    }
    if !recorded.is_empty() {
        rows.extend(of_group("all recorded traces", &recorded, lstm));
    }
    rows
}

fn of_group(name: &str, cases: &[&Judged], lstm: &Lstm) -> Vec<Row> {
    let mean = |method: Method| {
        geometric_mean(cases.iter().map(|case| case.ratio_of(method(&case.result).mae)))
    };
    let theirs: Vec<Figure> =
        cases.iter().map(|case| lstm.figure(&case.name, |result| Some(result.mae))).collect();
    let unknown = theirs.iter().find(|figure| matches!(figure, Figure::Unknown(_))).cloned();
    let maes = || theirs.iter().map(|f| if let Figure::Known(mae) = f { *mae } else { f64::NAN });
    let of_lstm = |number: &dyn Fn() -> f64| match &unknown {
        Some(unknown) => unknown.clone(),
        None => Figure::Known(number()),
    };
    let lstm_mean =
        || geometric_mean(cases.iter().zip(maes()).map(|(case, mae)| case.ratio_of(mae)));
    let beaten = |mae: &dyn Fn(usize) -> f64| {
        let is_better = |&at: &usize| mae(at) < cases[at].best();
        (0..cases.len()).filter(is_better).count() as f64
    };
    let count = |metric: &str, value: Figure| Row::of(name, metric, "", value, Better::Neither);
    let maes_of_lstm: Vec<f64> = maes().collect();
    vec![
        count("number", Figure::Known(cases.len() as f64)),
        Row::new(
            name,
            "geometric mean of MAE ÷ better of last value and linear",
            "times",
            mean(|e| &e.shown),
            Better::Lower,
        )
        .peer("delphi", Figure::Known(mean(|e| &e.delphi)))
        .peer("as trained", Figure::Known(mean(|e| &e.trained)))
        .peer("lstm", of_lstm(&lstm_mean)),
        count(
            "traces on which it is better than both",
            Figure::Known(beaten(&|at| cases[at].result.shown.mae)),
        )
        .peer("lstm", of_lstm(&|| beaten(&|at| maes_of_lstm[at]))),
        count(
            "traces on which it is better than the LSTM",
            of_lstm(&|| {
                let ours = cases.iter().zip(maes());
                ours.filter(|(case, mae)| case.result.shown.mae < *mae).count() as f64
            }),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use skopos_score::delphi::{Errors, Evaluation};

    use super::*;

    fn case(group: Option<&str>, shown: f64) -> Judged {
        let errors = |mae| Errors { mae, rmse: mae, r2: None };
        let result = Evaluation {
            trained: errors(2.0),
            delphi: errors(shown),
            shown: errors(shown),
            last_value: errors(1.0),
            linear: errors(4.0),
            coverage: None,
            bound: None,
            delphi_shown: 1.0,
            predictions: 1,
        };
        let group = group.map(str::to_owned);
        Judged { name: "no such trace".to_owned(), group, unit: String::new(), result }
    }

    #[test]
    fn groups_are_summed_by_themselves_and_together() {
        let judged =
            [case(Some("a"), 0.5), case(Some("b"), 1.0), case(Some("b"), 0.25), case(None, 9.0)];
        let rows = serde_json::to_value(rows(&judged, &Lstm::read())).expect("rows are data");
        let check = |case: &str, metric: &str, expected: f64| {
            let mut all = rows.as_array().into_iter().flatten();
            let row = all.find(|row| row["case"] == case && row["metric"] == metric);
            assert_eq!(
                row.and_then(|row| row["value"].as_f64()),
                Some(expected),
                "{case} {metric}"
            );
        };
        let mean = "geometric mean of MAE ÷ better of last value and linear";
        check("traces of a", mean, 0.5);
        check("traces of b", mean, 0.5);
        check("all recorded traces", mean, 0.5);
        check("all recorded traces", "number", 3.0);
        check("traces of b", "traces on which it is better than both", 1.0);
    }
}
