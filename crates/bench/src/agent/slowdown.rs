//! The slowdown of applications by the agent: the same work without it and with it, in turns.

use std::time::Duration;

use super::application::Application;
use super::everything;
use super::fio::Fio;
use super::mpi::Mpi;
use super::pairs::{LEAST, Pairs};
use super::place::Place;
use super::watcher::Watcher;
use crate::plan::Plan;
use crate::report::{Better, Figure, Goal, Row};
use crate::stats::{interval, median};
use skopos_term::Failure;

/// Rest before each run, with the agent or without, so that the cost of its start is not measured.
const REST: Duration = Duration::from_secs(1);

/// Runs each application.
pub(super) fn run(plan: &Plan, place: &Place) -> Result<Vec<Row>, Failure> {
    let mut fio = Fio::new(&place.disk.dir("fio")?);
    let mut mpi = Mpi::new(&place.disk.dir("mpi")?);
    let applications: [(&str, &mut dyn Application); 2] =
        [("fio beside the agent", &mut fio), ("MPI beside the agent", &mut mpi)];
    let mut all = Vec::new();
    for (case, application) in applications {
        plan.say(&format!("{case}: {} pairs of runs …", plan.pairs));
        all.extend(rows(case, &measure(plan, place, application)));
    }
    Ok(all)
}

/// All pairs, or the reason why there are none.
fn measure(plan: &Plan, place: &Place, application: &mut dyn Application) -> Result<Pairs, String> {
    if plan.pairs == 0 {
        return Err("a measurement this short has no pairs of runs".to_owned());
    }
    application.prepare(plan.work)?;
    let mut pairs = Pairs::default();
    for pair in 0..plan.pairs {
        // ABBA: a steady drift affects both alike.
        for with in if pair % 2 == 0 { [false, true] } else { [true, false] } {
            let seconds = once(place, application, with)?;
            if with { &mut pairs.with } else { &mut pairs.without }.push(seconds);
        }
    }
    Ok(pairs)
}

fn once(place: &Place, application: &mut dyn Application, with: bool) -> Result<f64, String> {
    let mut agent = match with {
        true => Some(watcher(place).map_err(|e| e.message().to_owned())?),
        false => None,
    };
    std::thread::sleep(REST);
    let seconds = application.once()?;
    if let Some(agent) = &mut agent {
        agent.check().map_err(|e| e.message().to_owned())?;
    }
    Ok(seconds)
}

fn watcher(place: &Place) -> Result<Watcher, Failure> {
    Watcher::start(place, &everything::configuration()?, &[])
}

fn rows(case: &str, measured: &Result<Pairs, String>) -> Vec<Row> {
    let of = |number: &dyn Fn(&Pairs) -> Result<f64, String>| match measured.as_ref().map(number) {
        Ok(Ok(number)) => Figure::Known(number),
        Ok(Err(reason)) => Figure::Unknown(reason),
        Err(reason) => Figure::Unknown(reason.clone()),
    };
    let row = |metric: &str, unit, number: &dyn Fn(&Pairs) -> Result<f64, String>| {
        Row::of(case, metric, unit, of(number), Better::Neither)
    };
    let bounds = |pairs: &Pairs| {
        interval(&pairs.slowdowns()).ok_or_else(|| {
            format!("{} pairs are too few for an interval; it takes {LEAST}", pairs.with.len())
        })
    };
    let mut slowdown = row("slowdown, median", "%", &|pairs| Ok(median(&pairs.slowdowns())));
    if let Ok(pairs) = measured {
        slowdown = slowdown
            .rounds("without", &pairs.without)
            .rounds("with", &pairs.with)
            .rounds("slowdown", &pairs.slowdowns());
    }
    vec![
        row("time without", "s", &|pairs| Ok(median(&pairs.without))),
        row("time with", "s", &|pairs| Ok(median(&pairs.with))),
        slowdown,
        row("slowdown, at least (95 %)", "%", &|pairs| Ok(bounds(pairs)?.0))
            .goal(Goal::AtMost(0.0)),
        row("slowdown, at most (95 %)", "%", &|pairs| Ok(bounds(pairs)?.1)),
        row("noise: without, and without again", "%", &|pairs| {
            pairs.noise().ok_or_else(|| "one run has no noise".to_owned())
        }),
    ]
}
