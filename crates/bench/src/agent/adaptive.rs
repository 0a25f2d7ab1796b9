//! The agent with all features on and intervals that follow the machine, on an idle and on a busy
//! machine.

use std::time::Duration;

use super::busy::Busy;
use super::everything;
use super::place::Place;
use super::polls::{Costs, Polls};
use super::usage::{Meter, Usage, machine_busy};
use super::watcher::Watcher;
use super::window::{SHORTEST, watch};
use crate::plan::Plan;
use crate::report::{Better, Figure, Goal, Row};
use skopos_term::Failure;

/// The greatest share of a core on an idle machine, in per cent.
const IDLE_GOAL: f64 = 0.02;
/// The greatest share of a core on a busy machine, in per cent.
const BUSY_GOAL: f64 = 0.05;
/// The greatest resident memory, in megabytes.
const MEMORY_GOAL: f64 = 10.0;

/// The measurements of a window.
struct Measured {
    usage: Usage,
    costs: Costs,
    window: Duration,
    facts: usize,
    insights: f64,
    insight_runs: f64,
    predictions: usize,
    peers: f64,
    /// Processor time of the whole machine, in seconds a second.
    machine: f64,
}

/// Measures on the idle and on the busy machine.
pub(super) fn run(plan: &Plan, place: &Place) -> Result<Vec<Row>, Failure> {
    let mut all = rows("adaptive, idle", IDLE_GOAL, &Ok(idle(plan, place)?));
    all.extend(rows("adaptive, busy", BUSY_GOAL, &busy(plan, place)?));
    Ok(all)
}

fn idle(plan: &Plan, place: &Place) -> Result<Measured, Failure> {
    let agent = start(place)?;
    measure(plan, agent, "idle")
}

/// The reason why the load cannot run here.
fn busy(plan: &Plan, place: &Place) -> Result<Result<Measured, String>, Failure> {
    let agent = start(place)?;
    let dir = place.disk.dir("busy")?;
    let life = (plan.settle + plan.window.max(SHORTEST)) * 2;
    let mut load = match Busy::start(&dir, life) {
        Ok(load) => load,
        Err(reason) => return Ok(Err(reason)),
    };
    let found = measure(plan, agent, "busy")?;
    Ok(load.check().map(|()| found))
}

fn start(place: &Place) -> Result<Watcher, Failure> {
    Watcher::start(place, &everything::configuration()?, &[])
}

fn measure(plan: &Plan, mut agent: Watcher, when: &str) -> Result<Measured, Failure> {
    let window = plan.window.max(SHORTEST);
    let (settle, seconds) = (plan.settle.as_secs(), window.as_secs());
    plan.say(&format!("adaptive, {when}: settling for {settle} s, measuring for {seconds} s …"));
    std::thread::sleep(plan.settle);
    let runs_at_start = agent.value("*/self/insight_runs_total")?;
    let machine_at_start = machine_busy()?;
    let polls = Polls::start(agent.segment())?;
    let mut meters = [Meter::start(vec![agent.pid()])];
    watch(&mut meters, window);
    let [meter] = meters;
    let usage = meter.stop().map_err(Failure::new)?;
    let costs = polls.stop()?;
    let machine = (machine_busy()? - machine_at_start) / window.as_secs_f64();
    agent.check()?;
    Ok(Measured {
        usage,
        costs,
        window,
        facts: agent.count("**")?,
        insights: agent.value("*/self/insights")?,
        insight_runs: agent.value("*/self/insight_runs_total")? - runs_at_start,
        predictions: agent.count("*/predicted/**")?,
        peers: agent.value("*/peer/*/alive")?,
        machine,
    })
}

fn rows(case: &str, goal: f64, found: &Result<Measured, String>) -> Vec<Row> {
    let row = |metric: &str, unit, better, number: &dyn Fn(&Measured) -> f64| {
        let figure = match found.as_ref().map(number) {
            Ok(number) if number.is_finite() => Figure::Known(number),
            Ok(_) => Figure::Unknown("no poll was counted in so short a window".to_owned()),
            Err(reason) => Figure::Unknown(reason.clone()),
        };
        Row::of(case, metric, unit, figure, better)
    };
    let neither = |metric: &str, unit, number: &dyn Fn(&Measured) -> f64| {
        row(metric, unit, Better::Neither, number)
    };
    vec![
        row("resident memory", "MB", Better::Lower, &|f| f.usage.rss_bytes as f64 / 1e6)
            .goal(Goal::AtMost(MEMORY_GOAL)),
        row("processor", "% of a core", Better::Lower, &|f| f.usage.cpu_seconds_per_second * 100.0)
            .goal(Goal::AtMost(goal)),
        neither("facts", "", &|f| f.facts as f64),
        neither("insights", "", &|f| f.insights),
        neither("predicted topics", "", &|f| f.predictions as f64),
        neither("peers alive", "", &|f| f.peers),
        neither("insights computed", "1/s", &|f| f.insight_runs / f.window.as_secs_f64()),
        neither("polls", "1/s", &|f| f.costs.polls / f.window.as_secs_f64()),
        neither("time between two polls of a sensor, mean", "s", &|f| {
            f.costs.sensors as f64 * f.window.as_secs_f64() / f.costs.polls
        }),
        neither("the whole machine", "% of a core", &|f| f.machine * 100.0),
    ]
}
