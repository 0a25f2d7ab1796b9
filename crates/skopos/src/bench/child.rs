//! Processes that a measurement starts and ends: each by its own id, never by name.

use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a process may take to end after SIGTERM before it is killed.
const PATIENCE: Duration = Duration::from_secs(3);

/// A process that ends with this value.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn inner(&mut self) -> &mut Child {
        &mut self.0
    }

    /// True unless it has ended.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.runs() {
            return;
        }
        // Not reaped yet, so the id is still this child's.
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            if !self.runs() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `ready` gives something, `process` ends, or `patience` is over.
pub(crate) fn wait_for<T>(
    process: &mut Process,
    patience: Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<T, String> {
    let started = Instant::now();
    loop {
        if let Some(found) = ready() {
            return Ok(found);
        }
        if let Ok(Some(status)) = process.inner().try_wait() {
            return Err(format!("it ended at once, with {status}"));
        }
        if started.elapsed() > patience {
            return Err(format!("it was not ready after {} s", patience.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
