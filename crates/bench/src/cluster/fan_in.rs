//! A hub that follows a thousand nodes, and its recovery after a restart.

use std::time::{Duration, Instant};

use super::role::{Hub, Transport, start};
use crate::agent::place::Place;
use crate::agent::usage::{Meter, Usage};
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

/// The most nodes of a hub with certificates beside which a hub in clear text has as many: together they leave the machine
/// some of its processor time.
const MOST_BESIDE: usize = 2000;

/// The name of the run without certificates.
const CLEAR: &str = "clear text";

/// The most memory of a hub for each fact, in bytes.
const MOST_BYTES: f64 = 800.0;

/// Factor by which certificates may be dearer.
const DEARER: f64 = 1.10;

/// Hubs with and without certificates, each with its nodes, work at the same time: both see the same noise. With many
/// nodes, the hub with certificates is alone, and is not started again: the nodes of one process take minutes to connect.
pub(super) fn measure(
    plan: &Plan,
    nodes: Option<usize>,
    place: &Place,
    report: &mut Report,
) -> Result<(), Failure> {
    let is_full = plan.window >= Duration::from_secs(30);
    let nodes = nodes.unwrap_or(if is_full { NODES } else { FEW_NODES });
    let certified = Transport::certified(place.memory.dir("pki")?)?;
    let transports = [("fan-in-tls", certified), ("fan-in", Transport::Clear)];
    let hubs = if nodes > MOST_BESIDE { 1 } else { 2 };
    let mut sites = transports
        .into_iter()
        .take(hubs)
        .map(|(name, transport)| Site::start(place, name, transport, nodes))
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
    sites.truncate(1);
    let site = sites.pop().ok_or_else(|| Failure::new("no site"))?;

    let case = format!("fan-in, {nodes} nodes with {FACTS} facts");
    report.add(costs(&case, &usages, site.empty_bytes, nodes));
    let row = |metric: &str, unit, value, better| Row::new(&*case, metric, unit, value, better);
    report.add([
        row("lost batches", "", lost, Better::Lower).goal(Goal::AtMost(0.0)),
        row("nodes that are whole at the end", "", is_whole, Better::Higher)
            .goal(Goal::AtLeast(nodes as f64)),
    ]);
    if hubs == 2 {
        recover(site, place, nodes, report)?;
    }
    let beside = match hubs {
        2 => {
            "Two hubs with as many nodes each run at the same time, one with certificates and one in clear text"
        }
        _ => "The hub has certificates",
    };
    report.note(format!(
        "fan-in: `skopos simulate --rate 1`, {}% of the facts change at each look, a connection each, all \
         in one process; over {} s. all are whole: every node is there with every topic. {beside}",
        30,
        plan.window.as_secs()
    ));
    Ok(())
}

/// Rows of the costs of a hub and its nodes, beside those in clear text if there are such.
fn costs(case: &str, usages: &[Usage], empty_bytes: f64, nodes: usize) -> Vec<Row> {
    let percent = |usage: &Usage| usage.cpu_seconds_per_second * 100.0;
    let megabytes = |usage: &Usage| usage.rss_bytes as f64 / 1e6;
    let each = |usage: &Usage| (usage.rss_bytes as f64 - empty_bytes) / (nodes * FACTS) as f64;
    let row = |metric, unit, role: usize, of: &dyn Fn(&Usage) -> f64| {
        let row = Row::new(case, metric, unit, of(&usages[role]), Better::Lower);
        match usages.get(role + 2) {
            Some(clear) => row.peer(CLEAR, Figure::Known(of(clear))),
            None => row,
        }
    };
    let times = |metric, role: usize| {
        let clear = usages.get(role + 2)?;
        let times = percent(&usages[role]) / percent(clear);
        Some(Row::new(case, metric, "", times, Better::Lower).goal(Goal::AtMost(DEARER)))
    };
    let hub = row("processor of the hub", "% of a core", 0, &percent);
    let mut rows = vec![hub.goal(Goal::AtMost(100.0))];
    rows.extend(times("processor of the hub, times that in clear text", 0));
    rows.push(row("memory of the hub", "MB", 0, &megabytes));
    rows.push(row("of that, each fact", "bytes", 0, &each).goal(Goal::AtMost(MOST_BYTES)));
    rows.push(row("processor of the nodes", "% of a core", 1, &percent));
    rows.extend(times("processor of the nodes, times that in clear text", 1));
    rows
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
    /// Resident memory of the hub before its nodes came, once it has answered a question.
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
        // The first question brings the code of the query engine into memory.
        hub.number(&whole())?;
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
