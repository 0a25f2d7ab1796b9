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

use super::agent::place::Place;
use super::machine::Machine;
use super::report::Report;
use crate::plan::Plan;
use skopos_term::Failure;

/// Runs all cases, one after the other.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::new("cluster", Machine::this());
    let place = Place::new()?;
    plan.say("propagation …");
    propagation::measure(plan, &place, &mut report)?;
    plan.say("deaths …");
    death::measure(plan, &place, &mut report)?;
    plan.say("cost of the live plane …");
    cost::measure(plan, &place, &mut report)?;
    plan.say("fan-in …");
    fan_in::measure(plan, &place, &mut report)?;
    Ok(report)
}
