//! The paper's Figures 5 to 7 on the cases `mobject` and `sonata`: where the time of calls goes.

use std::collections::{BTreeMap, HashMap};

use skopos_rpc::{Interval, Kind, Stage};

use crate::case::folder::Folder;
use crate::case::table;
use crate::children::Launcher;
use crate::error::{Error, Result};
use crate::run::Row;
use crate::view::View;

/// Callpaths that are shown, as in Figure 6.
const DOMINANT: usize = 5;

const STORE: &str = "sonata_store_multi_json";

/// Runs both cases once, and measures their traces.
///
/// # Errors
/// A case fails, or its traces cannot be read.
pub fn figures(launcher: &Launcher) -> Result<Vec<Row>> {
    let mut rows = callpaths(&traced(launcher, "mobject")?);
    rows.extend(steps(&traced(launcher, "sonata")?));
    Ok(rows)
}

fn traced(launcher: &Launcher, name: &str) -> Result<View> {
    let case = table::find(name).ok_or(Error::Message("there is no such case"))?;
    let folder = Folder::new()?;
    let trace = Some(folder.path().to_owned());
    case.run(&Launcher { stage: Stage::Full, trace, ..launcher.clone() })?;
    View::read(folder.path())
}

/// The callpaths with the most end-to-end time, and the number of calls below a write.
fn callpaths(view: &View) -> Vec<Row> {
    let targets = view.sides.iter().filter(|side| side.span.kind == Kind::Target);
    let above: HashMap<u64, &str> = targets.map(|s| (s.span.span, s.rpc.as_str())).collect();
    let mut sums: BTreeMap<String, (f64, u64)> = BTreeMap::new();
    for side in view.sides.iter().filter(|side| side.span.kind == Kind::Origin) {
        let path = match above.get(&side.span.parent) {
            Some(caller) => format!("{caller} -> {}", side.rpc),
            None => side.rpc.clone(),
        };
        let sum = sums.entry(path).or_default();
        *sum = (sum.0 + side.seconds, sum.1 + 1);
    }
    let below = |(path, sum): (&String, &(f64, u64))| {
        path.starts_with("mobject_write_op -> ").then_some(sum.1)
    };
    let calls: u64 = sums.iter().filter_map(below).sum();
    let writes = view.of(Kind::Target, "mobject_write_op").count();
    let mut sums: Vec<(String, (f64, u64))> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    let mut rows =
        vec![Row::new("mobject", "calls below a write", "", calls as f64 / writes as f64)];
    for (path, (seconds, calls)) in sums.iter().take(DOMINANT) {
        rows.push(Row::new(path, "end-to-end time of all calls", "s", *seconds));
        rows.push(Row::new(path, "calls", "", *calls as f64));
    }
    rows
}

/// The steps of a store on its target.
fn steps(view: &View) -> Vec<Row> {
    let seconds = |interval| view.interval_seconds(STORE, interval);
    let transfer = seconds(Interval::TargetInternalRdmaTransfer);
    let queue = seconds(Interval::TargetHandler);
    let deserialization = seconds(Interval::InputDeserialization);
    let execution = seconds(Interval::TargetExecutionExclusive) - deserialization;
    let response = seconds(Interval::TargetCompletionCallback);
    let all = transfer + queue + deserialization + execution + response;
    let row = |step, part: f64| Row::new("sonata", step, "%", part / all * 100.0);
    vec![
        row("internal transfer of the overflow", transfer),
        row("queue", queue),
        row("input deserialisation", deserialization),
        row("execution without it", execution),
        row("response", response),
    ]
}
