//! `skopos trace collect`: drains the services of this machine into a folder, without an agent.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use skopos_rpc::drain::Segments;
use skopos_term::{Failure, Global, tell};

/// Time between two looks at the rings.
const EVERY: Duration = Duration::from_millis(100);

/// The most bytes of one process: sixteen million records.
const MAX_PROCESS_BYTES: u64 = 1 << 30;

pub(super) fn run(global: &Global, out: &Path, time: Duration) -> Result<ExitCode, Failure> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(out);
    made.map_err(|e| Failure::new(format!("{}: cannot be made", out.display())).because(&e))?;
    let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
    let mut segments = Segments::new(vec![dir], out, MAX_PROCESS_BYTES);
    let until = Instant::now() + time;
    let (mut records, mut lost, mut services, mut watched) = (0, 0, 0, 0);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let work = segments.poll();
        records += work.records;
        lost += work.lost + work.deleted;
        services = services.max(work.live + work.ended.len());
        watched = watched.max(work.watched);
        for failure in &work.failures {
            tell(format!("skopos: {failure}"));
        }
        if left.is_zero() {
            break;
        }
        std::thread::sleep(EVERY.min(left));
    }
    if services == 0 {
        let failure =
            Failure::no("no service on this machine records its calls into shared memory");
        return Err(match watched {
            0 => failure.hint("start one whose recorder has no folder of its own"),
            _ => failure.hint(format!("{watched} services write traces of their own")),
        });
    }
    tell(format!("{}: {records} records of {services} services, {lost} lost", out.display()));
    Ok(ExitCode::SUCCESS)
}
