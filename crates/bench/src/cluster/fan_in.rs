//! A hub that follows a thousand nodes, and its recovery after a restart.

use std::time::{Duration, Instant};

use super::role::{Hub, start};
use crate::agent::place::Place;
use crate::agent::usage::Meter;
use crate::agent::window::watch;
use crate::child::{Process, wait_for};
use crate::plan::Plan;
use crate::report::{Better, Goal, Report, Row};
use skopos_term::Failure;

/// Number of facts of each node.
const FACTS: usize = 300;
/// The longest time until all nodes are known.
const PATIENCE: Duration = Duration::from_secs(300);

/// Number of nodes of a full run, and of a short one.
const NODES: usize = 1000;
const FEW_NODES: usize = 200;

pub(super) fn measure(plan: &Plan, place: &Place, report: &mut Report) -> Result<(), Failure> {
    let is_full = plan.window >= Duration::from_secs(30);
    let nodes = if is_full { NODES } else { FEW_NODES };
    let mut hub = Hub::start(place, "fan-in")?;
    let empty = Meter::start(vec![hub.process.pid()]).stop().map_err(Failure::new)?;
    let dir = place.memory.dir("simulated")?;
    let (nodes_text, facts_text) = (nodes.to_string(), FACTS.to_string());
    let args = ["simulate", "--nodes", &nodes_text, "--facts", &facts_text, "--rate", "1"];
    let joins = ["--look-on", "none", "--connect", &hub.at, "--for", "20m"];
    let (mut simulated, log) = start(place, &dir, &[&args[..], &joins[..]].concat())?;
    let said = || std::fs::read_to_string(&log).ok().filter(|text| text.contains("started"));
    wait_for(&mut simulated, PATIENCE, said)
        .map_err(|why| Failure::new(format!("the simulated nodes do not start: {why}")))?;
    let whole = format!("SELECT count(*) FROM nodes WHERE alive AND topics = {FACTS}");
    hub.until(&whole, nodes as f64, PATIENCE)?;
    std::thread::sleep(plan.settle.min(Duration::from_secs(10)));

    let case = format!("fan-in, {nodes} nodes with {FACTS} facts");
    let row = |metric: &str, unit, value, better| Row::new(&*case, metric, unit, value, better);
    let lost = "SELECT sum(lost_batches) FROM nodes";
    let lost_before = hub.number(lost)?.unwrap_or_default();
    let mut meters =
        vec![Meter::start(vec![hub.process.pid()]), Meter::start(vec![simulated.pid()])];
    watch(&mut meters, plan.window);
    let usages = meters.into_iter().map(Meter::stop).collect::<Result<Vec<_>, _>>();
    let usages = usages.map_err(Failure::new)?;
    let lost = hub.number(lost)?.unwrap_or_default() - lost_before;
    let is_whole = hub.number(&whole)?.unwrap_or_default();
    let (facts, memory) = ((nodes * FACTS) as f64, usages[0].rss_bytes as f64);
    let more = memory - empty.rss_bytes as f64;
    report.add([
        row(
            "processor of the hub",
            "% of a core",
            usages[0].cpu_seconds_per_second * 100.0,
            Better::Lower,
        )
        .goal(Goal::AtMost(100.0)),
        row("memory of the hub", "MB", memory / 1e6, Better::Lower),
        row("of that, each fact", "bytes", more / facts, Better::Lower),
        row("lost batches", "", lost, Better::Lower).goal(Goal::AtMost(0.0)),
        row("nodes that are whole at the end", "", is_whole, Better::Higher)
            .goal(Goal::AtLeast(nodes as f64)),
        row(
            "processor of the nodes",
            "% of a core",
            usages[1].cpu_seconds_per_second * 100.0,
            Better::Neither,
        ),
    ]);
    let begun = Instant::now();
    hub = hub.start_again(place)?;
    let first = hub.until("SELECT count(*) FROM nodes WHERE alive", 1.0, PATIENCE);
    let first = first.map(|_| begun.elapsed())?;
    hub.until(&whole, nodes as f64, PATIENCE)?;
    let case = format!("a hub starts again, {nodes} nodes");
    let row =
        |metric, value: Duration| Row::new(&*case, metric, "s", value.as_secs_f64(), Better::Lower);
    report
        .add([row("the first is back after", first), row("all are whole after", begun.elapsed())]);
    still_runs(&mut simulated)?;
    report.note(format!(
        "fan-in: `skopos simulate --rate 1`, {}% of the facts change at each look, a connection each, all \
         in one process; over {} s. all are whole: every node is there with every topic",
        30,
        plan.window.as_secs()
    ));
    Ok(())
}

fn still_runs(simulated: &mut Process) -> Result<(), Failure> {
    match simulated.runs() {
        true => Ok(()),
        false => Err(Failure::new("the simulated nodes ended while they were followed")),
    }
}
