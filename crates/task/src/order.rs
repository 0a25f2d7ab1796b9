//! The request to monitor one task.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use skopos_model::task::Limits;

/// The command to run or the process to attach to, and how to monitor it.
#[derive(Clone, Debug)]
pub struct Order {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// A running process to monitor instead of starting a command.
    pub attach: Option<i32>,
    /// The task class, which groups similar tasks; `None` takes the program's name.
    pub class: Option<String>,
    /// The level of measurement: 1, 2 or 3. `None` takes the highest that costs almost nothing.
    pub level: Option<u8>,
    /// The limits of the task.
    pub limits: Limits,
    /// Time that a task has to exit by itself after it exceeds a limit.
    pub kill_after: Duration,
    /// Time between two samples, and between two rows of the series.
    pub interval: Duration,
    /// Folders whose files are counted.
    pub watch: Vec<PathBuf>,
    /// Names of the mechanisms that may be used; `None` takes the best set.
    pub only: Option<Vec<String>>,
    /// Variables that the user has the monitor set for the command.
    pub environment: Vec<(OsString, OsString)>,
}
