//! The report of a task: `summary.json`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::limits::{Limit, amount};

/// The version of the report's format, raised when a field changes its meaning or is removed.
pub const SUMMARY_VERSION: u32 = 1;

/// The report of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SUMMARY_VERSION`].
    pub version: u32,
    /// Identity of the task.
    pub task: Identity,
    /// The machine that the task ran on.
    pub host: Host,
    /// Start time, in seconds of UNIX time.
    pub start_seconds: f64,
    /// Exit time of its first process, in seconds of UNIX time.
    pub end_seconds: f64,
    /// The end of the task.
    pub ended: Ended,
    /// The limits that were set; empty if there were none.
    #[serde(default)]
    pub limits_set: Vec<LimitSet>,
    /// The level of measurement: 1, 2 or 3.
    pub level: u8,
    /// All resources by name.
    pub resources: BTreeMap<String, Reading>,
    /// All mechanisms, used or not.
    pub mechanisms: Vec<MechanismUse>,
    /// The usage of the monitor itself.
    pub overhead: Overhead,
    /// Conditions that reduce the accuracy of the measurement; empty if there were none.
    pub disturbed: Vec<String>,
    /// The findings, most important first.
    pub findings: Vec<Finding>,
    /// The processes by start time; if there are too many, those with the greatest usage.
    pub processes: Vec<Process>,
    /// Number of processes that are not in that list.
    pub processes_left_out: u64,
    /// Monitors that ran inside the task, by start time. The resources of the task include their
    /// measurements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nested: Vec<Nested>,
    /// Number of monitors that are not in that list.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nested_left_out: u64,
    /// The ranks, if this is the joined report of a parallel job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A monitor inside a task, with a summary of its measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Nested {
    /// The process id of the monitor.
    pub pid: i32,
    /// The process id of the monitor in whose task it ran directly.
    pub inside_of: Option<i32>,
    /// The class of its task.
    pub class: String,
    /// The command of its task, truncated.
    pub command: String,
    /// Its level of measurement.
    pub level: u8,
    /// Start time of its task, in seconds of UNIX time.
    pub start_seconds: f64,
    /// End time of its task; `null` if the monitor did not report it.
    pub end_seconds: Option<f64>,
    /// The end of its task; `unknown` if the monitor did not report it, because it was killed or is
    /// still running.
    pub exit_type: ExitType,
    /// The exit status of its task, if it exited normally.
    pub status: Option<i32>,
    /// The signal that ended its task, if any.
    pub signal: Option<i32>,
    /// The main resources that it measured.
    pub resources: BTreeMap<String, Reading>,
}

/// A parallel job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The id that the launcher gives the job; empty if it gives none.
    pub id: String,
    /// The launcher: `slurm`, `openmpi`, `pmi`.
    pub launcher: String,
    /// Number of ranks.
    pub ranks_total: u32,
    /// The ranks with a report, by number.
    pub ranks: Vec<RankUse>,
    /// Number of ranks with a report that are not in that list.
    pub ranks_left_out: u64,
    /// Numbers of ranks without a report: they are still running, or no report was written.
    pub missing: Vec<u32>,
    /// Number of all ranks without a report, including those not named.
    pub missing_total: u64,
}

/// A summary of one rank's usage; its own report has the details.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankUse {
    /// The number of the rank, from 0 on.
    pub rank: u32,
    /// The node of the rank.
    pub node: String,
    /// The end of the rank.
    pub exit_type: ExitType,
    /// The exit status, if it exited normally.
    pub status: Option<i32>,
    /// The signal that ended it, if any.
    pub signal: Option<i32>,
    /// Start time, in seconds of UNIX time.
    pub start_seconds: f64,
    /// The value in the report of the rank; `null` if it is unknown there.
    pub wall_seconds: Option<f64>,
    /// The value in the report of the rank; `null` if it is unknown there.
    pub cpu_seconds: Option<f64>,
    /// The value in the report of the rank; `null` if it is unknown there.
    pub resident_bytes_max: Option<f64>,
    /// The value in the report of the rank; `null` if it is unknown there.
    pub read_bytes: Option<f64>,
    /// The value in the report of the rank; `null` if it is unknown there.
    pub written_bytes: Option<f64>,
}

/// Identity of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The class, which groups similar tasks: given by the user, or the name of the program.
    pub class: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The working directory at the start.
    pub folder: String,
    /// The tool that measured the task: `skopos` with its version, or the tool of an imported
    /// report.
    pub monitor: String,
    /// The rank in a parallel job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    /// Set if the task was running before the monitor: sums count from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

/// An attached task, which was running before the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    /// The process that was attached to.
    pub pid: i32,
    /// Time that it had run before the attach, in seconds; `null` if that is unknown.
    pub after_seconds: Option<f64>,
}

/// Formats as `process 4711, which had run for 2 h 05 m: sums count from then on`.
impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if let Some(seconds) = self.after_seconds {
            write!(f, ", which had run for {}", amount(seconds, "seconds"))?;
        }
        f.write_str(": sums count from then on")
    }
}

/// The place of a task in a parallel job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// The id that the launcher gives the job.
    pub job: String,
    /// The number of this rank, from 0 on.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// The launcher: `slurm`, `openmpi`, `pmi`.
    pub launcher: String,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The node's name.
    pub node: String,
    /// The kernel's release.
    pub kernel: String,
    /// Number of cores that the task could use.
    pub cores: u32,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
}

/// A limit that was set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitSet {
    /// The name of the resource.
    pub name: String,
    /// The greatest value that was allowed, in the unit.
    pub most: f64,
    /// The unit of the resource.
    pub unit: String,
}

impl From<Limit> for LimitSet {
    fn from(limit: Limit) -> Self {
        let Limit { resource, most } = limit;
        Self { name: resource.name.to_owned(), most, unit: resource.unit.to_owned() }
    }
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The kind of the end.
    pub exit_type: ExitType,
    /// The exit status of the first process, if it exited normally.
    pub status: Option<i32>,
    /// The signal that ended the first process, if any.
    pub signal: Option<i32>,
    /// The exceeded limits: `memory: 5.1 GiB > 4 GiB`.
    pub limits: Vec<String>,
    /// The process that used most of the exceeded resource.
    pub guilty: Option<String>,
}

/// The kind of a task's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitType {
    /// The task exited normally, with any status.
    Normal,
    /// A signal ended the task.
    Signal,
    /// The monitor ended the task because it exceeded a limit.
    Limit,
    /// The task is still running: the monitor detached from it.
    Running,
    /// The task has ended with an unknown status.
    Unknown,
}

/// The measured value of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The value in the resource's unit; `null` if it is unknown.
    pub value: Option<f64>,
    /// The unit of the resource.
    pub unit: String,
    /// The mechanism that measured it; empty if it is unknown.
    pub method: String,
    /// The part of the task that the value covers.
    pub completeness: Completeness,
    /// The error bound, in the unit; `null` if there is none.
    pub error_bound: Option<f64>,
    /// The reason why it is unknown, or a note on what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The parts of this task that the value cannot contain; empty for `all`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// A part of a task that a reading cannot contain, as far as the monitor detected it for this task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// Input and output through mapped files: no system call says how many bytes they are.
    Mmap,
    /// Input and output through `io_uring`.
    IoUring,
    /// Input and output through `io_submit` (libaio).
    Aio,
    /// Input and output through `splice`, `tee` and `vmsplice`.
    Splice,
    /// Storage moved more for the task than its system calls explain.
    Unexplained,
    /// Peaks between two samples, and processes that lived between two.
    BetweenSamples,
    /// Another part, which the reason names.
    Other,
}

/// The part of the task that a reading covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completeness {
    /// Nothing: the value is unknown.
    None,
    /// Samples: peaks between two samples are missing, and so are processes that lived between two.
    Sampled,
    /// A lower bound: something is known to be missing.
    AtLeast,
    /// The whole task.
    All,
}

impl Reading {
    /// Returns the reading of an unknown resource.
    pub fn unknown(unit: &str, reason: impl Into<String>) -> Self {
        Self {
            value: None,
            unit: unit.to_owned(),
            method: String::new(),
            completeness: Completeness::None,
            error_bound: None,
            reason: Some(reason.into()),
            missing: Vec::new(),
        }
    }
}

/// A mechanism that was used or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MechanismUse {
    /// The name, as in the field `method` of readings.
    pub name: String,
    /// True if it was used.
    pub used: bool,
    /// Its purpose, or the reason why it was not used.
    pub why: String,
}

/// The usage of the monitor itself while the task ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Processor time, in seconds.
    pub cpu_seconds: f64,
    /// Peak of the resident memory, in bytes.
    pub resident_bytes_max: u64,
    /// Number of times that it stopped a process of the task.
    pub stops: u64,
}

/// A condition that stands out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The condition.
    pub what: String,
    /// Advice.
    pub advice: String,
}

/// A process of the task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// The process id.
    pub pid: i32,
    /// The process id of its parent.
    pub parent: i32,
    /// The command line, truncated; the name of the program if it is unknown.
    pub command: String,
    /// Time at which it was first seen, in seconds since the start of the task.
    pub start_seconds: f64,
    /// Exit time; `null` if it outlived the measurement.
    pub end_seconds: Option<f64>,
    /// The exit status, if it exited normally.
    pub status: Option<i32>,
    /// The signal that ended it, if any.
    pub signal: Option<i32>,
    /// Processor time, in seconds; `null` if its exit was missed.
    pub cpu_seconds: Option<f64>,
    /// Peak of the resident memory, in bytes.
    pub resident_bytes_max: Option<u64>,
    /// Bytes read, including all children that it waited for.
    pub read_bytes: Option<u64>,
    /// Bytes written, including all children that it waited for.
    pub written_bytes: Option<u64>,
}
