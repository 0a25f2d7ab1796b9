//! `skopos-bench anomaly`: what anomaly reports find, how soon, and what they cost: on a simulated host over many hours, and
//! on this machine under loads of `fio`, `iperf3` and `stress-ng` with injected faults.
//!
//! `faults` has their times, `tally` judges reports. `simulated` runs `host`; `machine` starts an agent in a lab, `loads`
//! and the faults of `inject`, which are `programs` for the most part.

mod faults;
mod tally;
mod host;
mod simulated;
mod programs;
mod loads;
mod inject;
mod machine;

use skopos_term::Failure;

use super::machine::Machine;
use super::plan::Plan;
use super::report::{Better, Figure, Report, Row};

pub(super) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::new("anomaly", Machine::this());
    plan.say("a simulated host …");
    match simulated::measure() {
        Ok(rows) => report.add(rows),
        Err(e) => report.add([unknown("simulated host", e.to_string())]),
    }
    plan.say("this machine …");
    match machine::measure(plan) {
        Ok((rows, notes)) => {
            report.add(rows);
            notes.into_iter().for_each(|note| report.note(note));
        }
        Err(e) => report.add([unknown("this machine", e.to_string())]),
    }
    Ok(report)
}

fn unknown(case: &str, reason: String) -> Row {
    Row::of(case, "result", "", Figure::Unknown(reason), Better::Neither)
}
