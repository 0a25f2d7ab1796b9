//! `skopos-bench degree`: the time from a changed fact to the insight over 1 to 640 facts, in another
//! process (the paper's Figure 7a).

use super::dag::{Dags, Delays, Shape, slope};
use super::machine::Machine;
use super::report::{Better, Figure, Goal, Report, Row};
use super::score::bench::REDIS;
use crate::plan::Plan;
use skopos_term::Failure;

/// Numbers of facts, up to the paper's 16 nodes with 40 facts each.
const DEGREES: [usize; 5] = [1, 40, 160, 320, 640];

/// Runs every case.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut machine = Machine::this();
    machine.version("redis-server", "redis-server", &["--version"]);
    let mut report = Report::new("degree", machine);
    let mut dags = Dags::new()?;
    for (case, all_change) in [("one fact changes", false), ("all facts change", true)] {
        let mut found = Vec::new();
        for facts in DEGREES {
            plan.say(&format!("{case}, {facts} facts …"));
            let shape = Shape { facts, layers: 1, all_change };
            found.push((facts, dags.measure(plan, shape)?));
        }
        report.add(rows(case, &found));
    }
    report.note(
        "from just before the first fact is published to the reader that sees the insight; the \
         insight is the greatest of all its inputs, and looks at all of them each time; facts and \
         insight are published into shared memory; the reader looks at the insight all the time, \
         the one of Redis is woken (XREAD BLOCK), as the insight's thread is",
    );
    Ok(report)
}

fn rows(case: &str, found: &[(usize, Delays)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (facts, found) in found {
        for (name, percent) in [("p50", 50.0), ("p99", 99.0)] {
            let metric = format!("{facts} fact{}, {name}", if *facts == 1 { "" } else { "s" });
            let ours = found.ours.percentile(percent) / 1e3;
            let row = Row::new(case, metric, "µs", ours, Better::Lower);
            rows.push(row.peer(REDIS, found.theirs(percent, 1e3)));
        }
    }
    let ours: Vec<_> = found.iter().map(|(n, f)| (*n as f64, f.ours.percentile(50.0))).collect();
    let theirs: Result<Vec<_>, String> = found
        .iter()
        .map(|(n, f)| match f.theirs(50.0, 1.0) {
            Figure::Known(nanos) => Ok((*n as f64, nanos)),
            Figure::Unknown(why) => Err(why),
        })
        .collect();
    let theirs = theirs.map_or_else(Figure::Unknown, |points| Figure::Known(slope(&points)));
    let row = Row::new(case, "an added input", "ns", slope(&ours), Better::Lower);
    rows.push(row.peer(REDIS, theirs).goal(Goal::AtMost(50.0)));
    rows
}
