//! `skopos-bench cassandra`: which replicas of a real cluster answer reads, and how soon, with Cassandra's own snitch, with the
//! snitch of Skopos, and with severities that Skopos sets by JMX.
//!
//! Three nodes of Cassandra run in a lab, each with all rows on a disk of its own. The disk of `n1` is fast, and the link to
//! it gets a delay; those of `n2` and `n3` seek, as in MicroMon (section 4.5, figures 2 and 3). Requests of YCSB go to `n2`,
//! which chooses a replica for each read. An agent there ranks the replicas by the time that a read takes: the round trip to
//! the node and the reads of its disk. Nothing tells it the delays or the disks.
//!
//! Read in this order: `cells` (the cases), `place` (lab and disks), `nodes`, `agents`, `client`, `turns`, `results`.
//! Root, Java 17 and the artifacts of `bench/cassandra` and `clients/java` are needed.

mod cells;
mod place;
mod nodes;
mod agents;
mod client;
mod turns;
mod results;

use skopos_term::Failure;

use super::machine::Machine;
use super::plan::Plan;
use super::report::{Better, Figure, Report, Row};

pub(super) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut machine = Machine::this();
    machine.version("java", "java", &["-version"]);
    machine.version_is("cassandra", nodes::VERSION.to_owned());
    machine.version_is("ycsb", client::VERSION.to_owned());
    let mut report = Report::new("cassandra", machine);
    for note in results::NOTES {
        report.note(note);
    }
    let extent = cells::extent(plan);
    match turns::measure(plan, &extent) {
        Ok(turns) => {
            report.add(results::rows(&extent.cells, &turns));
            for failure in results::failures(&turns) {
                report.note(failure);
            }
        }
        Err(e) => {
            let unknown = Figure::Unknown(e.to_string());
            report.add([Row::of("cluster", "result", "", unknown, Better::Neither)]);
        }
    }
    Ok(report)
}
