//! `skopos-bench rpc`: what it costs to record calls, what the records say of a service, and how long analyses take.
//!
//! The recorders of others and the data service are programs of their own, so that this one needs none of their
//! libraries. Each prints its result as JSON, whose numbers become rows here.

mod printed;
mod analyses;
mod recorders;
mod service;
mod collector;

use skopos_term::Failure;

use super::machine::Machine;
use super::plan::Plan;
use super::report::Report;
use super::scratch::Scratch;

pub(super) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::new("rpc", Machine::this());
    let scratch = Scratch::on_disk()?;
    plan.say("recorders …");
    recorders::add(&mut report, plan, scratch.path());
    plan.say("spans to a collector …");
    collector::add(&mut report, plan, scratch.path());
    plan.say("the data service …");
    service::add(&mut report, plan, scratch.path());
    plan.say("analyses …");
    analyses::add(&mut report, plan, scratch.path())?;
    Ok(report)
}
