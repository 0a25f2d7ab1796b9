//! The cost of the live plane for an agent: an agent with it and an agent without, at the same time.

use super::role::Hub;
use crate::agent::place::Place;
use crate::agent::usage::{Meter, Usage};
use crate::agent::watcher::Watcher;
use crate::agent::window::watch;
use crate::plan::Plan;
use crate::report::{Better, Figure, Report, Row};
use skopos_term::Failure;

const WITHOUT: &str = "without";

pub(super) fn measure(plan: &Plan, place: &Place, report: &mut Report) -> Result<(), Failure> {
    let hub = Hub::start(place, "cost")?;
    let second = ["--interval", "1s", "--policy", "fixed"];
    let live = ["--live", "--insecure", "--connect", &hub.at];
    let without = Watcher::start(place, "", &[&["--node", "without"], &second[..]].concat())?;
    let with = Watcher::start(place, "", &[&["--node", "with"], &second[..], &live[..]].concat())?;
    std::thread::sleep(plan.settle.min(plan.window));
    with.wait_between_ticks()?;
    let mut meters = [with.pid(), without.pid()].map(|pid| Meter::start(vec![pid]));
    watch(&mut meters, plan.window);
    let usages = meters.into_iter().map(Meter::stop).collect::<Result<Vec<_>, _>>();
    let usages = usages.map_err(Failure::new)?;
    let row = |metric, unit, of: fn(&Usage) -> f64| {
        Row::new("agent with the live plane", metric, unit, of(&usages[0]), Better::Lower)
            .peer(WITHOUT, Figure::Known(of(&usages[1])))
    };
    report.add([
        row("resident memory", "MB", |usage| usage.rss_bytes as f64 / 1e6),
        row("its share of it (PSS)", "MB", |usage| usage.pss_bytes as f64 / 1e6),
        row("processor", "% of a core", |usage| usage.cpu_seconds_per_second * 100.0),
    ]);
    report.note(format!(
        "agent with the live plane: one that tells a hub and one that does not, at the same time, all \
         sensors each second, {} s",
        plan.window.as_secs()
    ));
    Ok(())
}
