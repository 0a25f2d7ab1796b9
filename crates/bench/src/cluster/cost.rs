//! The cost of the live plane for an agent: an agent with it and an agent without, at the same time, and the threads
//! that have it.

use std::collections::BTreeMap;

use super::role::Hub;
use crate::agent::place::Place;
use crate::agent::usage::{Meter, Usage, threads_of};
use crate::agent::watcher::Watcher;
use crate::agent::window::watch;
use crate::plan::Plan;
use crate::report::{Better, Figure, Goal, Report, Row};
use skopos_term::Failure;

const WITHOUT: &str = "without";

/// The most that an agent with the live plane may cost, times an agent without.
const DEARER: f64 = 1.5;

/// Threads that use less processor time than this are left out, in milliseconds a minute.
const LEAST_OF_THREAD: f64 = 0.1;

/// The ways in which an agent chooses its intervals.
const POLICIES: [(&str, &str, &[&str]); 2] = [
    ("fixed at 1 Hz", "cost-fixed", &["--interval", "1s", "--policy", "fixed"]),
    ("adaptive", "cost-adaptive", &[]),
];

pub(super) fn measure(plan: &Plan, place: &Place, report: &mut Report) -> Result<(), Failure> {
    for (name, hub, options) in POLICIES {
        let case = format!("agent with the live plane, {name}");
        of_policy(&case, options, &Hub::start(place, hub)?, plan, report, place)?;
    }
    report.note(format!(
        "agent with the live plane: one that tells a hub and one that does not, at the same time, all \
         sensors, {} s; the processor time of a thread is that of all threads of its name",
        plan.window.as_secs()
    ));
    Ok(())
}

fn of_policy(
    case: &str,
    options: &[&str],
    hub: &Hub,
    plan: &Plan,
    report: &mut Report,
    place: &Place,
) -> Result<(), Failure> {
    let live = ["--live", "--insecure", "--connect", &hub.at];
    let without = Watcher::start(place, "", &[&["--node", "without"], options].concat())?;
    let with = Watcher::start(place, "", &[&["--node", "with"], options, &live[..]].concat())?;
    std::thread::sleep(plan.settle.min(plan.window));
    with.wait_between_ticks()?;
    let threads = || threads_of(with.pid()).map_err(Failure::new);
    let before = threads()?;
    let mut meters = [with.pid(), without.pid()].map(|pid| Meter::start(vec![pid]));
    watch(&mut meters, plan.window);
    let usages = meters.into_iter().map(Meter::stop).collect::<Result<Vec<_>, _>>();
    let usages = usages.map_err(Failure::new)?;
    let after = threads()?;
    let row = |metric, unit, of: fn(&Usage) -> f64| {
        Row::new(case, metric, unit, of(&usages[0]), Better::Lower)
            .peer(WITHOUT, Figure::Known(of(&usages[1])))
    };
    let processor = |usage: &Usage| usage.cpu_seconds_per_second * 60_000.0;
    let times = processor(&usages[0]) / processor(&usages[1]);
    report.add([
        row("resident memory", "MB", |usage| usage.rss_bytes as f64 / 1e6),
        row("its share of it (PSS)", "MB", |usage| usage.pss_bytes as f64 / 1e6),
        row("processor", "ms/min", processor),
        Row::new(case, "processor, times that without", "", times, Better::Lower)
            .goal(Goal::AtMost(DEARER)),
    ]);
    let minutes = plan.window.as_secs_f64() / 60.0;
    report.add(by_thread(case, &before, &after, minutes));
    Ok(())
}

/// Rows of the processor time of each thread, the dearest first.
fn by_thread(
    case: &str,
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
    minutes: f64,
) -> Vec<Row> {
    let spent = |(name, nanos): (&String, &u64)| {
        let nanos = nanos.saturating_sub(before.get(name).copied().unwrap_or_default());
        (name.clone(), nanos as f64 / 1e6 / minutes)
    };
    let mut spent: Vec<(String, f64)> = after.iter().map(spent).collect();
    spent.retain(|(_, each)| *each >= LEAST_OF_THREAD);
    spent.sort_by(|a, b| b.1.total_cmp(&a.1));
    let row = |(name, each): (String, f64)| {
        Row::new(case, format!("processor, thread {name}"), "ms/min", each, Better::Lower)
    };
    spent.into_iter().map(row).collect()
}
