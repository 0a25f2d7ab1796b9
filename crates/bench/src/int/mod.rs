//! `skopos-bench int`: what packets with in-band telemetry say against theory, what telemetry costs them and others, and
//! how many reports a collector takes, and what forged ones cost.
//!
//! All of it is on this machine: hosts `a` and `b` of a lab, with two switches between them, which are source and sink.
//! Host `a` has two links to its switch, so that packets can change their path. Root, `ip` and `tc` are needed; a part that
//! cannot run says why.

mod setting;
mod queue;
mod cost;
mod traffic;
mod collector;
mod flood;

use skopos_term::Failure;

use self::setting::Outcome;
use super::machine::Machine;
use super::plan::Plan;
use super::report::{Better, Figure, Report, Row};

/// Measures one part.
type Measure = fn(&Plan) -> Outcome<Vec<Row>>;

const PARTS: [(&str, Measure); 6] = [
    ("full queue and path", queue::measure),
    ("programs", cost::measure),
    ("datagrams", traffic::packets),
    ("throughput", traffic::throughput),
    ("collector", collector::measure),
    ("flood", flood::measure),
];

pub(super) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::new("int", Machine::this());
    report.note(
        "links are pairs of virtual interfaces: they forward a packet in the time of a function call, so what telemetry adds \
         is a larger part of it than on wires",
    );
    for (part, measure) in PARTS {
        plan.say(&format!("{part} …"));
        match measure(plan) {
            Ok(rows) => report.add(rows),
            Err(e) => {
                let unknown = Figure::Unknown(e.to_string());
                report.add([Row::of(part, "result", "", unknown, Better::Neither)]);
            }
        }
    }
    Ok(report)
}
