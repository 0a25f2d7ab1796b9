//! `skopos-bench rank`: the cost of reading a rank from Rust, C and Java, the time in which a thousand candidates are ranked
//! again, and the choice of clients in the simulator beside other ways to choose.

mod read;
mod rerank;
mod choice;

use crate::machine::Machine;
use crate::plan::Plan;
use crate::report::Report;
use skopos_term::Failure;

/// Runs every case.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut machine = Machine::this();
    machine.version("cc", "cc", &["--version"]);
    machine.version("java", "java", &["-version"]);
    let mut report = Report::new("rank", machine);
    plan.say("reads …");
    report.add(read::measure(plan)?);
    report.note(
        "reads: the weights of three candidates in turns, while another thread publishes all ranks each millisecond; with its \
         age, a read also reads the clock; a round of Java is a virtual machine of its own, which compiles the loop first",
    );
    plan.say("ranking a thousand candidates …");
    report.add(rerank::measure(plan)?);
    report.note("a thousand candidates with ten metrics, whose values all change each time");
    report.add(choice::measure(plan));
    report.note(
        "choice: a simulation of a hundred servers and a hundred clients; p99 of the latency, mean of the seeds; requests \
         time out after 500 ms; the seeds were written down before any of them ran",
    );
    Ok(report)
}
