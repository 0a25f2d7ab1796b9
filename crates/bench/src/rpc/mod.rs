//! `skopos-bench rpc`: what it costs to record calls, what the records say of a service, and how long analyses take.
//!
//! The recorders of others and the data service are programs of their own, so that this one needs none of their
//! libraries. Each prints its result as JSON, whose numbers become rows here.

mod analyses;
mod recorders;
mod service;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value as Json;
use skopos_term::Failure;

use super::child::finish;
use super::machine::Machine;
use super::plan::Plan;
use super::report::{Figure, Report};
use super::scratch::Scratch;

/// The longest time of one program: the overhead of the service takes five minutes in full.
const PATIENCE: Duration = Duration::from_secs(3600);

pub(super) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::new("rpc", Machine::this());
    let scratch = Scratch::on_disk()?;
    plan.say("recorders …");
    recorders::add(&mut report, plan, scratch.path());
    plan.say("the data service …");
    service::add(&mut report, plan, scratch.path());
    plan.say("analyses …");
    analyses::add(&mut report, plan, scratch.path())?;
    Ok(report)
}

/// Runs a program that prints JSON.
fn printed(program: &Path, words: &[String], folder: &Path) -> Result<Json, String> {
    let text = finish(Command::new(program).args(words), folder, PATIENCE)?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", program.display()))
}

/// Returns the number at a pointer of RFC 6901.
fn number(json: &Json, pointer: &str) -> Figure {
    let found = json.pointer(pointer).and_then(Json::as_f64);
    found.map_or_else(|| Figure::Unknown(format!("no number at {pointer}")), Figure::Known)
}

/// Returns the numbers of the rounds at a pointer.
fn rounds(json: &Json, pointer: &str) -> Vec<f64> {
    let all = json.pointer(pointer).and_then(Json::as_array);
    all.map_or_else(Vec::new, |all| all.iter().filter_map(Json::as_f64).collect())
}
