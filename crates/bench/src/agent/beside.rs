//! The agent with a fixed interval of a second, beside collectd and PCP: all three run at the same
//! time and measure comparable facts.

use std::time::Duration;

use super::collectd::Collectd;
use super::pcp::Pcp;
use super::peer::Peer;
use super::place::Place;
use super::polls::Polls;
use super::usage::{Meter, Usage};
use super::watcher::Watcher;
use super::window::{SHORTEST, watch};
use crate::plan::Plan;
use crate::report::{Better, Figure, Goal, Row};
use skopos_term::Failure;

/// Time between the first facts and the window: by then all monitors have opened their files.
const SETTLE: Duration = Duration::from_secs(4);

/// Runs all three for the window; they have ended when this returns.
pub(super) fn run(plan: &Plan, place: &Place) -> Result<Vec<Row>, Failure> {
    let mut agent = Watcher::start(place, "", &["--interval", "1s", "--policy", "fixed"])?;
    let mut peers: [Box<dyn Peer>; 2] = [
        Box::new(Collectd::start(&place.memory.dir("collectd")?)),
        Box::new(Pcp::start(&place.memory.dir("pcp")?)),
    ];
    let window = plan.window.max(SHORTEST);
    plan.say(&format!("agent, 1 Hz: measuring for {} s …", window.as_secs()));
    std::thread::sleep(SETTLE.min(window));
    agent.wait_between_ticks()?;
    let polls = Polls::start(agent.segment())?;
    let mut meters: Vec<Meter> = vec![Meter::start(vec![agent.pid()])];
    meters.extend(peers.iter_mut().map(|peer| Meter::of(peer.pids())));
    watch(&mut meters, window);
    let usages: Vec<Result<Usage, String>> = meters.into_iter().map(Meter::stop).collect();
    let polls = polls.stop()?;
    agent.check()?;
    let facts = agent.count("**")?;
    let ours = usages[0].clone().map_err(Failure::new)?;
    let beside: Vec<Beside> = peers
        .iter_mut()
        .zip(&usages[1..])
        .map(|(peer, usage)| Beside::new(peer.as_mut(), usage))
        .collect();
    let mut rows = rows(&ours, facts, &beside);
    rows.extend(polls.rows());
    Ok(rows)
}

/// A peer's numbers.
struct Beside {
    name: &'static str,
    usage: Result<Usage, String>,
    values: Result<usize, String>,
}

impl Beside {
    fn new(peer: &mut dyn Peer, usage: &Result<Usage, String>) -> Self {
        let values = usage.clone().and_then(|_| peer.values());
        Self { name: peer.name(), usage: usage.clone(), values }
    }

    fn figure(&self, of: impl Fn(&Usage) -> f64) -> Figure {
        match &self.usage {
            Ok(usage) => Figure::Known(of(usage)),
            Err(reason) => Figure::Unknown(reason.clone()),
        }
    }

    fn values(&self, of: impl Fn(&Usage, f64) -> f64) -> Figure {
        match (&self.usage, &self.values) {
            (Ok(usage), Ok(values)) => Figure::Known(of(usage, *values as f64)),
            (Err(reason), _) | (_, Err(reason)) => Figure::Unknown(reason.clone()),
        }
    }
}

fn rows(ours: &Usage, facts: usize, beside: &[Beside]) -> Vec<Row> {
    let case = "agent, 1 Hz";
    let facts = facts as f64;
    let with = |row: Row, figure: &dyn Fn(&Beside) -> Figure| {
        beside.iter().fold(row, |row, peer| row.peer(peer.name, figure(peer)))
    };
    let row = |metric: &str, unit, value, better| Row::new(case, metric, unit, value, better);
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let each = |usage: &Usage, values: f64| usage.cpu_seconds_per_second / values * 1e6;
    vec![
        with(row("resident memory", "MB", megabytes(ours.rss_bytes), Better::Lower), &|peer| {
            peer.figure(|usage| megabytes(usage.rss_bytes))
        })
        .goal(Goal::AtMost(10.0)),
        with(
            row("its share of it (PSS)", "MB", megabytes(ours.pss_bytes), Better::Lower),
            &|peer| peer.figure(|usage| megabytes(usage.pss_bytes)),
        ),
        with(
            row("processor", "% of a core", ours.cpu_seconds_per_second * 100.0, Better::Lower),
            &|peer| peer.figure(|usage| usage.cpu_seconds_per_second * 100.0),
        )
        .goal(Goal::AtMost(0.05)),
        with(row("facts", "", facts, Better::Neither), &|peer| peer.values(|_, values| values)),
        with(row("processor, each fact", "µs", each(ours, facts), Better::Lower), &|peer| {
            peer.values(each)
        }),
    ]
}
