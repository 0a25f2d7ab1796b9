//! `skopos-bench cluster`: the live plane between processes of this machine, over TCP on its loopback.
//!
//! `propagation` measures the time from a change on one node to a reader of the mirror on another.
//! `fan_in` measures a hub that follows a thousand simulated nodes, and its recovery after a restart.
//! `death` measures the time until a hub knows that a node is gone, and `cost` the cost of the live plane
//! for an agent. All roles are processes of `skopos`, started as a user starts them.

mod role;
mod propagation;
mod fan_in;
mod death;
mod cost;

use clap::ValueEnum;
use skopos_term::Failure;

use super::agent::place::Place;
use super::machine::Machine;
use super::report::Report;
use crate::plan::Plan;

/// The cases of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// From a change on one node to a reader of the mirror on another
    Propagation,
    /// Until a hub knows that a node is gone
    Death,
    /// The processor time and memory of an agent that tells a hub
    Cost,
    /// A hub that follows many nodes, and its restart
    FanIn,
}

/// Runs all cases, one after the other, or one alone; with this number of nodes of a hub, if it is given.
pub(crate) fn run(
    plan: &Plan,
    case: Option<Case>,
    nodes: Option<usize>,
) -> Result<Report, Failure> {
    let mut report = Report::new("cluster", Machine::this());
    let place = Place::new()?;
    let is_wanted = |one| case.is_none_or(|case| case == one);
    if is_wanted(Case::Propagation) {
        plan.say("propagation …");
        propagation::measure(plan, &place, &mut report)?;
    }
    if is_wanted(Case::Death) {
        plan.say("deaths …");
        death::measure(plan, &place, &mut report)?;
    }
    if is_wanted(Case::Cost) {
        plan.say("cost of the live plane …");
        cost::measure(plan, &place, &mut report)?;
    }
    if is_wanted(Case::FanIn) {
        plan.say("fan-in …");
        fan_in::measure(plan, nodes, &place, &mut report)?;
    }
    Ok(report)
}
