//! fio, as a load without end and as an application with a fixed amount of work.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::application::Application;
use crate::child::{Process, finish, not_started};

/// The file that it reads and writes: larger than the cache of most devices.
const SIZE: u64 = 256 << 20;
/// The longest time to start and to write that file, at the 10 MB/s of a slow disk.
pub(super) const WAKE: Duration = Duration::from_secs(30);
/// A piece of work counts as hung after this multiple of its time.
const PATIENCE: u32 = 20;
/// The least amount of work: more than one request a run.
const LEAST: u64 = 1 << 20;

/// The mode of the load: it also writes, so that facts of the device change in every way.
const LOAD: &str = "--rw=randrw";
/// The mode of the work: reads alone. On shared disks the time of writes varies by half from run to run,
/// and such noise would hide the slowdown.
const WORK: &str = "--rw=randread";

/// fio with a file of its own.
pub(super) struct Fio {
    dir: PathBuf,
    /// Number of bytes of a run.
    work: u64,
    limit: Duration,
}

/// The parts of its report that are read.
#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    /// Milliseconds without the start and the end of the program.
    job_runtime: f64,
    read: Reads,
}

#[derive(Deserialize)]
struct Reads {
    io_bytes: u64,
}

impl Fio {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.into(), work: LEAST, limit: WAKE }
    }

    /// Reads or writes 4 KiB at random places past the cache, one at a time and the same in each run.
    fn command(&self, what: &str) -> Command {
        let mut command = Command::new("fio");
        command.args(["--name=skopos", what, "--bs=4k", "--direct=1", "--ioengine=psync"]);
        command.args(["--randseed=1", "--thread", "--output-format=json"]);
        command.arg(format!("--size={SIZE}"));
        command.arg(format!("--filename={}", self.dir.join("data").display()));
        command
    }

    /// Writes the file.
    pub(super) fn lay_out(&self) -> Result<(), String> {
        finish(self.command(WORK).arg("--create_only=1"), &self.dir, WAKE).map(drop)
    }

    /// Runs until the process is dropped, or `life` is over.
    pub(super) fn keep_going(&self, life: Duration) -> Result<Process, String> {
        let mut command = self.command(LOAD);
        command.arg("--time_based").arg(format!("--runtime={}", life.as_secs() + 1));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Process::start(&mut command).map_err(|e| not_started("fio", &e))
    }

    fn job(&self, command: &mut Command) -> Result<Job, String> {
        let text = finish(command, &self.dir, self.limit)?;
        parse(&text)
    }
}

/// Parses the job of a report, which stands behind messages.
fn parse(text: &str) -> Result<Job, String> {
    let report = text.get(text.find('{').unwrap_or(0)..).unwrap_or_default();
    let output: Output = serde_json::from_str(report).map_err(|e| format!("fio's report: {e}"))?;
    output.jobs.into_iter().next().ok_or_else(|| "fio's report has no job".to_owned())
}

impl Application for Fio {
    fn prepare(&mut self, time: Duration) -> Result<(), String> {
        self.lay_out()?;
        let seconds = time.as_secs().max(1);
        let mut command = self.command(WORK);
        command.arg("--time_based").arg(format!("--runtime={seconds}"));
        let job = self.job(&mut command)?;
        let rate = job.read.io_bytes as f64 / (job.job_runtime / 1e3);
        if !(rate.is_finite() && rate > 0.0) {
            return Err("fio did nothing in its warm-up".to_owned());
        }
        self.work = ((rate * time.as_secs_f64()) as u64).max(LEAST);
        self.limit = WAKE + time * PATIENCE;
        Ok(())
    }

    fn once(&mut self) -> Result<f64, String> {
        let mut command = self.command(WORK);
        let job = self.job(command.arg(format!("--io_size={}", self.work)))?;
        Ok(job.job_runtime / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_found_behind_messages() {
        let text = r#"fio: a note on stdout
            {"fio version": "fio-3.33", "jobs": [{"jobname": "skopos", "job_runtime": 5012,
             "read": {"io_bytes": 4096}, "write": {"io_bytes": 0}}]}"#;
        let job = parse(text).expect("a report");
        assert!((job.job_runtime - 5012.0).abs() < 1e-9);
        assert_eq!(job.read.io_bytes, 4096);
        for wrong in ["", "fio: error", r#"{"jobs": []}"#, r#"{"jobs": [{}]}"#] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
