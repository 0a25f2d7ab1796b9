//! `skopos-bench height`: the time from a changed fact to the top of 1 to 32 layers of insights, in
//! another process (the paper's Figure 7b).

use super::dag::{Dags, Delays, Shape, slope};
use super::machine::Machine;
use super::report::{Better, Figure, Goal, Report, Row};
use super::score::bench::REDIS;
use crate::plan::Plan;
use skopos_term::Failure;

/// The paper's numbers of layers.
const HEIGHTS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Number of facts below the lowest layer: the paper has 32 nodes with one fact each.
const FACTS: usize = 32;

/// Runs every case.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut machine = Machine::this();
    machine.version("redis-server", "redis-server", &["--version"]);
    let mut report = Report::new("height", machine);
    let mut dags = Dags::new()?;
    let mut found = Vec::new();
    for layers in HEIGHTS {
        plan.say(&format!("{layers} layers …"));
        let shape = Shape { facts: FACTS, layers, all_change: false };
        found.push((layers, dags.measure(plan, shape)?));
    }
    report.add(rows(&found));
    report.note(format!(
        "from just before a fact is published to the reader that sees the top insight; {FACTS} \
         facts, one of which changes; each layer is computed from the one below and published into \
         shared memory; the reader looks at the top all the time, the one of Redis is woken (XREAD \
         BLOCK), as the threads of the layers are"
    ));
    Ok(report)
}

fn rows(found: &[(usize, Delays)]) -> Vec<Row> {
    let case = "one fact changes";
    let mut rows = Vec::new();
    for (layers, found) in found {
        for (name, percent) in [("p50", 50.0), ("p99", 99.0)] {
            let metric = format!("{layers} layer{}, {name}", if *layers == 1 { "" } else { "s" });
            let ours = found.ours.percentile(percent) / 1e3;
            let row = Row::new(case, metric, "µs", ours, Better::Lower);
            rows.push(row.peer(REDIS, found.theirs(percent, 1e3)));
        }
    }
    let ours: Vec<_> =
        found.iter().map(|(n, f)| (*n as f64, f.ours.percentile(50.0) / 1e3)).collect();
    let theirs: Result<Vec<_>, String> = found
        .iter()
        .map(|(n, f)| match f.theirs(50.0, 1e3) {
            Figure::Known(micros) => Ok((*n as f64, micros)),
            Figure::Unknown(why) => Err(why),
        })
        .collect();
    let theirs = theirs.map_or_else(Figure::Unknown, |points| Figure::Known(slope(&points)));
    let row = Row::new(case, "an added layer", "µs", slope(&ours), Better::Lower);
    rows.push(row.peer(REDIS, theirs).goal(Goal::AtMost(5.0)));
    rows
}
