//! `skopos-bench store`: the storage of jobs under the loads of SLAte's evaluation.
//!
//! `sts` sends records to a hub and waits for their acknowledgements; `lts` seals, verifies and reads segments; `mds` fills
//! and searches the catalogue. `peers` puts the same records into what one would use instead. `slate` makes the jobs.

mod slate;
mod hub;
mod sts;

use skopos_term::Failure;
use tokio::runtime::Builder;

use self::hub::Hub;
use self::sts::Load;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::report::{Better, Goal, Report, Row};
use crate::scratch::Scratch;

/// Runs all parts.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::new("store", Machine::this());
    let scratch = Scratch::on_disk()?;
    plan.say("short-time storage …");
    short_time(plan, &scratch, &mut report)?;
    Ok(report)
}

fn short_time(plan: &Plan, scratch: &Scratch, report: &mut Report) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::new("no runtime").because(&e);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let hub = Hub::start(&scratch.dir("sts")?, &runtime)?;
    let records = if plan.is_short { 200_000 } else { 600_000 };
    let load = Load { streams: 8, rows: 500, records, per_second: None, window: 4, jobs: 50 };
    let (mut first, mut epoch) = (0, 1);
    for _ in 0..plan.rounds {
        let taken = sts::send(&hub, &runtime, &load, (first, epoch, 80))?;
        first += taken.jobs as u64;
        epoch += 1;
        report.add([
            Row::new("8 streams", "records a second", "1/s", taken.per_second, Better::Higher)
                .goal(Goal::AtLeast(100_000.0)),
            Row::new(
                "8 streams",
                "acknowledgement p99",
                "ms",
                taken.latencies.percentile(99.0) / 1e6,
                Better::Lower,
            ),
        ]);
    }
    let paced = Load { per_second: Some(100_000.0), records: 400_000, window: 64, ..load };
    for _ in 0..plan.rounds {
        let taken = sts::send(&hub, &runtime, &paced, (first, epoch, 80))?;
        first += taken.jobs as u64;
        epoch += 1;
        report.add([
            Row::new("100000/s", "records a second", "1/s", taken.per_second, Better::Higher),
            Row::new(
                "100000/s",
                "acknowledgement p99",
                "ms",
                taken.latencies.percentile(99.0) / 1e6,
                Better::Lower,
            )
            .goal(Goal::AtMost(50.0)),
        ]);
    }
    Ok(())
}
