//! `skopos trace collect`: drains the services of this machine into a folder, without an agent.

use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use skopos_rpc::drain::Segments;
use skopos_term::{Failure, Global, tell};

/// Time between two looks at the rings.
const EVERY: Duration = Duration::from_millis(100);

/// The longest time of one collection: more is the work of an agent, which bounds what it keeps.
pub(super) const LONGEST: Duration = Duration::from_secs(7 * 86_400);

/// The most bytes of one process: sixteen million records.
const MAX_PROCESS_BYTES: u64 = 1 << 30;

/// The most failures that are told apart: paths are part of their texts.
const MAX_TOLD: usize = 64;

pub(super) fn run(global: &Global, out: &Path, time: Duration) -> Result<ExitCode, Failure> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(out);
    made.map_err(|e| Failure::new(format!("{}: cannot be made", out.display())).because(&e))?;
    let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
    let mut segments = Segments::new(vec![dir], out, MAX_PROCESS_BYTES);
    let until = Instant::now() + time;
    let (mut records, mut lost, mut services, mut watched) = (0, 0, 0, 0);
    let mut told = HashMap::<String, u64>::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let work = segments.poll();
        records += work.records;
        lost += work.lost + work.deleted;
        services = services.max(work.live + work.ended.len());
        watched = watched.max(work.watched);
        for failure in &work.failures {
            count_told(&mut told, failure.to_string());
        }
        if left.is_zero() {
            break;
        }
        std::thread::sleep(EVERY.min(left));
    }
    for (failure, times) in told.iter().filter(|(_, times)| **times > 1) {
        tell(format!("skopos: {failure}: {times} times"));
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

/// Counts a failure, and tells it the first time.
fn count_told(told: &mut HashMap<String, u64>, failure: String) {
    let has_room = told.contains_key(&failure) || told.len() < MAX_TOLD;
    let name = if has_room { failure } else { "other failures".to_owned() };
    if !told.contains_key(&name) {
        tell(format!("skopos: {name}"));
    }
    *told.entry(name).or_default() += 1;
}
