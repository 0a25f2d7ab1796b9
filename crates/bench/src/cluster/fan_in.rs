//! A hub that follows a thousand nodes, and its recovery after a restart.

use std::time::{Duration, Instant};

use super::role::{Hub, Transport, start};
use crate::agent::place::Place;
use crate::agent::usage::Meter;
use crate::agent::window::watch;
use crate::child::{Process, wait_for};
use crate::plan::Plan;
use crate::report::{Better, Figure, Goal, Report, Row};
use skopos_term::Failure;

/// Number of facts of each node.
const FACTS: usize = 300;
/// The longest time until all nodes are known.
const PATIENCE: Duration = Duration::from_secs(300);

/// Number of nodes of a full run, and of a short one.
const NODES: usize = 1000;
const FEW_NODES: usize = 200;

/// The name of the run without certificates.
const CLEAR: &str = "clear text";

/// Factor by which certificates may be dearer.
const DEARER: f64 = 1.10;

/// Hubs with and without certificates, each with its nodes, work at the same time: both see the same noise.
pub(super) fn measure(plan: &Plan, place: &Place, report: &mut Report) -> Result<(), Failure> {
    let is_full = plan.window >= Duration::from_secs(30);
    let nodes = if is_full { NODES } else { FEW_NODES };
    let certified = Transport::certified(place.memory.dir("pki")?)?;
    let mut sites = [("fan-in-tls", certified), ("fan-in", Transport::Clear)]
        .map(|(name, transport)| Site::start(place, name, transport, nodes))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(plan.settle.min(Duration::from_secs(10)));
    let lost_before = sites[0].lost()?;
    let pids = sites.iter().flat_map(|site| [site.hub.process.pid(), site.nodes.pid()]);
    let mut meters: Vec<Meter> = pids.map(|pid| Meter::start(vec![pid])).collect();
    watch(&mut meters, plan.window);
    let usages = meters.into_iter().map(Meter::stop).collect::<Result<Vec<_>, _>>();
    let usages = usages.map_err(Failure::new)?;
    let lost = sites[0].lost()? - lost_before;
    let is_whole = sites[0].hub.number(&whole())?.unwrap_or_default();
    let clear = sites.pop();
    drop(clear);

    let case = format!("fan-in, {nodes} nodes with {FACTS} facts");
    let row = |metric: &str, unit, value, better| Row::new(&*case, metric, unit, value, better);
    let percent = |at: usize| usages[at].cpu_seconds_per_second * 100.0;
    let memory = |at: usize| usages[at].rss_bytes as f64;
    let each = |at: usize| (memory(at) - sites[0].empty_bytes) / (nodes * FACTS) as f64;
    let beside = |row: Row, clear: f64| row.peer(CLEAR, Figure::Known(clear));
    let hub = row("processor of the hub", "% of a core", percent(0), Better::Lower);
    report.add([
        beside(hub.goal(Goal::AtMost(100.0)), percent(2)),
        row(
            "processor of the hub, times that in clear text",
            "",
            percent(0) / percent(2),
            Better::Lower,
        )
        .goal(Goal::AtMost(DEARER)),
        beside(row("memory of the hub", "MB", memory(0) / 1e6, Better::Lower), memory(2) / 1e6),
        beside(row("of that, each fact", "bytes", each(0), Better::Lower), each(2)),
        row("lost batches", "", lost, Better::Lower).goal(Goal::AtMost(0.0)),
        row("nodes that are whole at the end", "", is_whole, Better::Higher)
            .goal(Goal::AtLeast(nodes as f64)),
        beside(row("processor of the nodes", "% of a core", percent(1), Better::Lower), percent(3)),
        row(
            "processor of the nodes, times that in clear text",
            "",
            percent(1) / percent(3),
            Better::Lower,
        )
        .goal(Goal::AtMost(DEARER)),
    ]);
    let site = sites.pop().ok_or_else(|| Failure::new("no site"))?;
    recover(site, place, nodes, report)?;
    report.note(format!(
        "fan-in: `skopos simulate --rate 1`, {}% of the facts change at each look, a connection each, all \
         in one process; over {} s. all are whole: every node is there with every topic. Two hubs with as \
         many nodes each run at the same time, one with certificates and one in clear text",
        30,
        plan.window.as_secs()
    ));
    Ok(())
}

/// Kills the hub, starts it again, and measures the time until its nodes are back.
fn recover(site: Site, place: &Place, nodes: usize, report: &mut Report) -> Result<(), Failure> {
    let begun = Instant::now();
    let (hub, mut simulated) = (site.hub.start_again(place)?, site.nodes);
    let first = hub.until("SELECT count(*) FROM nodes WHERE alive", 1.0, PATIENCE);
    let first = first.map(|_| begun.elapsed())?;
    hub.until(&whole(), nodes as f64, PATIENCE)?;
    let case = format!("a hub starts again, {nodes} nodes");
    let row =
        |metric, value: Duration| Row::new(&*case, metric, "s", value.as_secs_f64(), Better::Lower);
    report
        .add([row("the first is back after", first), row("all are whole after", begun.elapsed())]);
    still_runs(&mut simulated)
}

/// The statement that counts the nodes that are there with every topic.
fn whole() -> String {
    format!("SELECT count(*) FROM nodes WHERE alive AND topics = {FACTS}")
}

/// A hub with its simulated nodes.
struct Site {
    hub: Hub,
    nodes: Process,
    /// Resident memory of the hub before its nodes came.
    empty_bytes: f64,
}

impl Site {
    fn start(
        place: &Place,
        name: &str,
        transport: Transport,
        nodes: usize,
    ) -> Result<Self, Failure> {
        let options = transport.options();
        let hub = Hub::start_with(place, name, transport)?;
        let empty = Meter::start(vec![hub.process.pid()]).stop().map_err(Failure::new)?;
        let dir = place.memory.dir(&format!("{name}-nodes"))?;
        let (count, facts) = (nodes.to_string(), FACTS.to_string());
        let mut args = vec!["simulate", "--nodes", &count, "--facts", &facts, "--rate", "1"];
        args.extend(["--connect", &hub.at, "--for", "20m"]);
        args.extend(options.iter().map(String::as_str));
        let (mut nodes_process, log) = start(place, &dir, &args)?;
        let said = || std::fs::read_to_string(&log).ok().filter(|text| text.contains("started"));
        wait_for(&mut nodes_process, PATIENCE, said)
            .map_err(|why| Failure::new(format!("the simulated nodes do not start: {why}")))?;
        hub.until(&whole(), nodes as f64, PATIENCE)?;
        Ok(Self { hub, nodes: nodes_process, empty_bytes: empty.rss_bytes as f64 })
    }

    fn lost(&self) -> Result<f64, Failure> {
        Ok(self.hub.number("SELECT sum(lost_batches) FROM nodes")?.unwrap_or_default())
    }
}

fn still_runs(simulated: &mut Process) -> Result<(), Failure> {
    match simulated.runs() {
        true => Ok(()),
        false => Err(Failure::new("the simulated nodes ended while they were followed")),
    }
}
