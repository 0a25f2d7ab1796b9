//! The report of one task: `summary.json`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::limits::{Limit, amount};

/// The version of the report's format: raised when a field changes its meaning or is removed.
pub const SUMMARY_VERSION: u32 = 1;

/// The report of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SUMMARY_VERSION`].
    pub version: u32,
    /// The task.
    pub task: Identity,
    /// The machine that it ran on.
    pub host: Host,
    /// Time of its start, in seconds of UNIX time.
    pub start_seconds: f64,
    /// Time when its first process ended, in seconds of UNIX time.
    pub end_seconds: f64,
    /// The end of the task.
    pub ended: Ended,
    /// The limits that were set; may be empty.
    #[serde(default)]
    pub limits_set: Vec<LimitSet>,
    /// The level of measurement: 1, 2 or 3.
    pub level: u8,
    /// The resources by name.
    pub resources: BTreeMap<String, Reading>,
    /// The mechanisms that could measure, and which of them did.
    pub mechanisms: Vec<MechanismUse>,
    /// The resources that the monitor itself used.
    pub overhead: Overhead,
    /// Circumstances that make the measurement less exact than it seems; may be empty.
    pub disturbed: Vec<String>,
    /// Findings, the most important first.
    pub findings: Vec<Finding>,
    /// Its processes in the order of their start; if there are too many, the ones that used most.
    pub processes: Vec<Process>,
    /// Number of processes that are not listed.
    pub processes_left_out: u64,
    /// Monitors that ran inside the task, in the order of their start. Their measurements are already
    /// part of its resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nested: Vec<Nested>,
    /// Number of monitors that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nested_left_out: u64,
    /// The ranks, if this is the report of a parallel job, joined from the reports of its ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A monitor inside a task, with the main results of its measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Nested {
    /// The process id of the monitor.
    pub pid: i32,
    /// The process id of the monitor that directly encloses it.
    pub inside_of: Option<i32>,
    /// The class of its task.
    pub class: String,
    /// The command of its task, cut if it is long.
    pub command: String,
    /// Its level of measurement.
    pub level: u8,
    /// Time when its task started, in seconds of UNIX time.
    pub start_seconds: f64,
    /// Time when its task ended; `null` if it did not report that.
    pub end_seconds: Option<f64>,
    /// The end of its task; `unknown` if it did not report that, because it was killed or still runs.
    pub exit_type: ExitType,
    /// The exit status of its task, if that returned.
    pub status: Option<i32>,
    /// The signal that ended its task, if any.
    pub signal: Option<i32>,
    /// The main resources that it measured.
    pub resources: BTreeMap<String, Reading>,
}

/// A parallel job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The launcher's id of the job; may be empty.
    pub id: String,
    /// The launcher that reported the job: `slurm`, `openmpi`, `pmi`.
    pub launcher: String,
    /// Number of ranks.
    pub ranks_total: u32,
    /// The ranks that have a report, in the order of their numbers.
    pub ranks: Vec<RankUse>,
    /// Number of ranks with a report that are not listed.
    pub ranks_left_out: u64,
    /// The ranks without a report: they still run, or no report was written.
    pub missing: Vec<u32>,
    /// Number of ranks without a report, also if `missing` does not name all of them.
    pub missing_total: u64,
}

/// The main resources of one rank of a job; its own report has all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankUse {
    /// The rank's number, from 0 on.
    pub rank: u32,
    /// The node that it ran on.
    pub node: String,
    /// The end of the rank.
    pub exit_type: ExitType,
    /// The exit status, if it returned.
    pub status: Option<i32>,
    /// The signal that ended it, if any.
    pub signal: Option<i32>,
    /// Time of its start, in seconds of UNIX time.
    pub start_seconds: f64,
    /// Wall time from its report; `null` if it is unknown there, like the fields below.
    pub wall_seconds: Option<f64>,
    /// Processor time from its report.
    pub cpu_seconds: Option<f64>,
    /// Largest resident memory from its report.
    pub resident_bytes_max: Option<f64>,
    /// Bytes read, from its report.
    pub read_bytes: Option<f64>,
    /// Bytes written, from its report.
    pub written_bytes: Option<f64>,
}

/// The identity of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The class, shared by tasks of the same kind: given by the user, or the name of the program.
    pub class: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The folder in which the task was started.
    pub folder: String,
    /// The tool that measured the task: `skopos` and its version, or the tool of an imported report.
    pub monitor: String,
    /// The task's place in a parallel job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    /// Set if the task was running before its monitor started: sums then count from that start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

/// A task that was running before its monitor started.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    /// The process that the user named.
    pub pid: i32,
    /// Seconds that it had run before the monitor started; `null` if unknown.
    pub after_seconds: Option<f64>,
}

/// Formats `process 4711, which had run for 2 h 05 m: sums count from then`.
impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if let Some(seconds) = self.after_seconds {
            write!(f, ", which had run for {}", amount(seconds, "seconds"))?;
        }
        f.write_str(": sums count from then")
    }
}

/// The place of a task in a parallel job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// The launcher's id of the job.
    pub job: String,
    /// The task's rank in the job, from 0 on.
    pub rank: u32,
    /// Number of ranks in the job.
    pub size: u32,
    /// The launcher that reported the job: `slurm`, `openmpi`, `pmi`.
    pub launcher: String,
}

/// The machine that a task ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The node's name.
    pub node: String,
    /// The kernel's release.
    pub kernel: String,
    /// Number of cores that the task could use.
    pub cores: u32,
    /// The memory of the machine, in bytes.
    pub memory_bytes: u64,
}

/// A limit that was set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitSet {
    /// The resource's name.
    pub name: String,
    /// The greatest allowed value, in the unit.
    pub most: f64,
    /// The resource's unit.
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
    /// The kind of end: a return, a signal or a limit.
    pub exit_type: ExitType,
    /// The exit status of its first process, if that returned.
    pub status: Option<i32>,
    /// The signal that ended its first process, if any.
    pub signal: Option<i32>,
    /// Each limit that was exceeded: `memory: 5.1 GiB > 4 GiB`.
    pub limits: Vec<String>,
    /// The process that used most of the exceeded resource.
    pub guilty: Option<String>,
}

/// The kind of a task's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitType {
    /// It returned, with any status.
    Normal,
    /// A signal ended it that it did not catch.
    Signal,
    /// The monitor killed it because it exceeded a limit.
    Limit,
    /// It still runs: the monitor was told to detach from it.
    Running,
    /// It ended in an unknown way.
    Unknown,
}

/// The measurement of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The value in the resource's unit; `null` if it is unknown.
    pub value: Option<f64>,
    /// The unit.
    pub unit: String,
    /// The mechanism that measured it; empty if the value is unknown.
    pub method: String,
    /// The part of the task that it covers.
    pub completeness: Completeness,
    /// The greatest possible error, in the unit; `null` if the error has no bound.
    pub error_bound: Option<f64>,
    /// The reason why the value is unknown or incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The part of a task that a reading covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completeness {
    /// The value is unknown.
    None,
    /// The value was sampled: peaks between two samples are missing, and so are processes that lived
    /// between two samples.
    Sampled,
    /// The value is a lower bound: something is known to be missing.
    AtLeast,
    /// The whole task.
    All,
}

impl Reading {
    /// Makes a reading without a value, for this reason.
    pub fn unknown(unit: &str, reason: impl Into<String>) -> Self {
        Self {
            value: None,
            unit: unit.to_owned(),
            method: String::new(),
            completeness: Completeness::None,
            error_bound: None,
            reason: Some(reason.into()),
        }
    }
}

/// A mechanism, and whether it was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MechanismUse {
    /// The name, as in the field `method` of readings.
    pub name: String,
    /// True if the mechanism measured.
    pub used: bool,
    /// The reason why it did not measure, or the purpose that it was used for.
    pub why: String,
}

/// The resources that the monitor itself used while the task ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Its processor time, in seconds.
    pub cpu_seconds: f64,
    /// Its largest resident memory, in bytes.
    pub resident_bytes_max: u64,
    /// Number of times that it stopped a process of the task to inspect it.
    pub stops: u64,
}

/// A notable observation about the task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The observation.
    pub what: String,
    /// Advice for the user.
    pub advice: String,
}

/// One process of the task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// The process id.
    pub pid: i32,
    /// The process id of its parent.
    pub parent: i32,
    /// The command line, cut if it is long; the name of the program if the command line is unknown.
    pub command: String,
    /// Time when it was first seen, in seconds since the start of the task.
    pub start_seconds: f64,
    /// Time of its end; `null` if it was alive when the monitor last looked.
    pub end_seconds: Option<f64>,
    /// The exit status, if it returned.
    pub status: Option<i32>,
    /// The signal that ended it, if any.
    pub signal: Option<i32>,
    /// Processor time in seconds; `null` if it ended unseen.
    pub cpu_seconds: Option<f64>,
    /// Its largest resident memory.
    pub resident_bytes_max: Option<u64>,
    /// Bytes that it and all children that it waited for asked to read.
    pub read_bytes: Option<u64>,
    /// Bytes that it and all children that it waited for asked to write.
    pub written_bytes: Option<u64>,
}
