//! `skopos bench cluster`: the live plane between processes of this machine, over TCP on its loopback.
//!
//! `propagation` is the time from a change on one node to a reader of the mirror on another; `fan_in` is a
//! hub that follows a thousand simulated nodes, and what happens when it starts again; `death` is how soon
//! a hub knows that a node is gone; `cost` is what the live plane costs an agent. All roles are processes of
//! this binary, started as a user would.

mod role;
mod propagation;
mod fan_in;
mod death;
mod cost;

use super::agent::Place;
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
