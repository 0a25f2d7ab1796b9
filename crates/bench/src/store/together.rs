//! A statement over sealed jobs that one, two and three hubs answer.
//!
//! Each hub has one core, so that two have twice of what one has; on a machine with two cores the third shares the second one.
//! The folder belongs to the first hub, which starts anew with other helpers for each turn.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use serde_json::Value as Json;
use skopos_shm::now;
use skopos_store::jobs::{JobPart, Lts};
use skopos_term::Failure;
use tokio::runtime::Runtime;

use super::download::rebuild;
use super::hub::{Hub, Setup};
use super::lts::BATCH;
use super::slate::{Job, PROFILES, VALUES};
use crate::cores::{Core, pin};
use crate::programs;
use crate::scratch::Scratch;

/// The statement: the mean of each metric over all jobs.
const SQL: &str =
    "SELECT metric, count(*) AS n, avg(value) AS mean FROM sealed_samples GROUP BY metric";

/// Time for an answer.
const TIMEOUT: &str = "300s";

fn failed(e: &dyn std::error::Error) -> Failure {
    Failure::new("statements of several hubs cannot be measured").because(e)
}

/// A folder of sealed jobs, and two hubs that help with it.
pub(super) struct Together<'r> {
    dir: PathBuf,
    helpers: [Hub; 2],
    runtime: &'r Runtime,
    /// Number of measured values.
    pub(super) values: usize,
}

impl<'r> Together<'r> {
    /// Seals `count` jobs, and starts the helpers.
    pub(super) fn start(
        scratch: &Scratch,
        count: usize,
        runtime: &'r Runtime,
    ) -> Result<Self, Failure> {
        let dir = scratch.dir("together")?;
        let folder = dir.join("state/jobs/lts");
        let lts = Lts::open(&folder).map_err(|e| failed(&e))?;
        for begin in (0..count).step_by(BATCH) {
            let job = |number: usize| Job::new(number as u64, PROFILES[0], 0).part();
            let parts: Vec<JobPart> = (begin..(begin + BATCH).min(count)).map(job).collect();
            lts.seal(&parts, now()).map_err(|e| failed(&e))?;
        }
        drop(lts);
        rebuild(&dir, "default")?;
        let config = format!("[hub.jobs]\nhelps_with = {:?}\n", folder.display().to_string());
        let helper = |at: usize| {
            let dir = scratch.dir(&format!("helper-{at}"))?;
            started(&dir, (runtime, Core::Last), &config)
        };
        let helpers = [helper(0)?, helper(1)?];
        Ok(Self { dir, helpers, runtime, values: count * PROFILES[0] * VALUES })
    }

    /// Measures the statement with as many hubs. Returns the seconds.
    pub(super) fn turn(&self, hubs: usize) -> Result<f64, Failure> {
        let urls: Vec<String> =
            self.helpers[..hubs - 1].iter().map(|hub| format!("{:?}", hub.url())).collect();
        let config = format!("[hub.jobs]\nhelpers = [{}]\n", urls.join(", "));
        let _asked = started(&self.dir, (self.runtime, Core::First), &config)?;
        // The first answer opens the segments.
        self.ask()?;
        self.ask()
    }

    fn ask(&self) -> Result<f64, Failure> {
        let mut command = Command::new(programs::skopos()?);
        command.args(["sql", "--json", "--timeout", TIMEOUT, SQL, "--dir"]);
        command.arg(self.dir.join("run")).env("SKOPOS_STATE", self.dir.join("state"));
        let begun = Instant::now();
        let ran = command.stdin(Stdio::null()).output().map_err(|e| failed(&e))?;
        let seconds = begun.elapsed().as_secs_f64();
        let document: Json = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        let rows = document["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        let counted: u64 = rows.iter().filter_map(|row| row["n"].as_u64()).sum();
        match counted == self.values as u64 {
            true => Ok(seconds),
            false => {
                Err(Failure::new(format!("the answer has {counted} of {} values", self.values))
                    .hint(String::from_utf8_lossy(&ran.stderr).trim().to_owned()))
            }
        }
    }
}

/// Starts a hub on one core: a process inherits that of the thread that starts it.
fn started(
    dir: &std::path::Path,
    (runtime, core): (&Runtime, Core),
    config: &str,
) -> Result<Hub, Failure> {
    thread::scope(|scope| {
        let starting = scope.spawn(|| {
            pin(core);
            Hub::start(dir, runtime, Setup { config, ..Setup::default() })
        });
        starting.join().unwrap_or_else(|_| Err(Failure::new("a hub could not be started")))
    })
}
