//! One job as `scontrol show job` shows it, for programs that ask once.

use std::path::Path;
use std::time::Duration;

use super::show_job::{limit_seconds, memory, number, unix_seconds, value};
use super::{Lingering, Scontrol};

/// The line of a job. A key that occurs more than once has no value, because users write some of the texts.
#[derive(Debug)]
pub struct ShownJob(String);

impl ShownJob {
    /// Asks `scontrol`, which may take `time`, about a job.
    ///
    /// # Errors
    /// The program cannot be started, does not answer in time, or does not show the job.
    pub fn ask(scontrol: &Path, job: u32, time: Duration) -> Result<Self, String> {
        let (path, lingering) = (scontrol.to_owned(), Lingering::default());
        let mut scontrol = Scontrol { path, patience: time, lingering };
        let output = scontrol.output(&["-o", "-d", "show", "job", &job.to_string()])?;
        let text = String::from_utf8_lossy(&output);
        let start = format!("JobId={job} ");
        let line = text.lines().find(|line| line.starts_with(&start));
        let line = line.ok_or_else(|| format!("{} does not show it", scontrol.path.display()))?;
        Ok(Self(line.to_owned()))
    }

    /// Returns the text of a key, which has no spaces.
    pub fn text(&self, key: &'static str) -> Option<&str> {
        value(&self.0, key).ok().flatten()
    }

    /// Returns a number.
    pub fn number(&self, key: &'static str) -> Option<u64> {
        self.text(key).and_then(number)
    }

    /// Returns the memory of all nodes together, in bytes.
    pub fn memory_bytes(&self) -> Option<u64> {
        memory(&self.0).ok().flatten()
    }

    /// Returns a time in seconds of UNIX time.
    pub fn unix_seconds(&self, key: &'static str) -> Option<f64> {
        self.text(key).and_then(unix_seconds)
    }

    /// Returns the limit on time, in seconds.
    pub fn limit_seconds(&self) -> Option<f64> {
        self.text("TimeLimit").and_then(limit_seconds)
    }
}
