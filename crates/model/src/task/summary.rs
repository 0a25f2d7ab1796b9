//! The report of one task: `summary.json`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::limits::{Limit, amount};

/// The version of the report's format: raised when a field changes its meaning or goes.
pub const SUMMARY_VERSION: u32 = 1;

/// The report of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SUMMARY_VERSION`].
    pub version: u32,
    /// What ran.
    pub task: Identity,
    /// Where it ran.
    pub host: Host,
    /// When it started, in seconds of UNIX time.
    pub start_seconds: f64,
    /// When its first process ended, in seconds of UNIX time.
    pub end_seconds: f64,
    /// How it ended.
    pub ended: Ended,
    /// The limits that were set; empty if none was.
    #[serde(default)]
    pub limits_set: Vec<LimitSet>,
    /// The level of measurement: 1, 2 or 3.
    pub level: u8,
    /// Each resource by its name.
    pub resources: BTreeMap<String, Reading>,
    /// What could have measured, and what did.
    pub mechanisms: Vec<MechanismUse>,
    /// What the monitor itself took.
    pub overhead: Overhead,
    /// What makes the measurement say less than it seems to; empty if nothing does.
    pub disturbed: Vec<String>,
    /// What stood out, most important first.
    pub findings: Vec<Finding>,
    /// Its processes in the order of their start, those that used most if there are too many.
    pub processes: Vec<Process>,
    /// Processes that are not in that list.
    pub processes_left_out: u64,
    /// Monitors that ran inside of it, in the order of their start; what they measured is in its
    /// resources already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nested: Vec<Nested>,
    /// Monitors that are not in that list.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nested_left_out: u64,
    /// Its ranks, if this is the report of a parallel job, joined from theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A monitor inside a task, and shortly what it measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Nested {
    /// Its process id.
    pub pid: i32,
    /// That of the monitor that it ran directly inside of.
    pub inside_of: Option<i32>,
    /// The class of its task.
    pub class: String,
    /// The command of its task, cut if it is long.
    pub command: String,
    /// Its level of measurement.
    pub level: u8,
    /// When its task started, in seconds of UNIX time.
    pub start_seconds: f64,
    /// When that ended; `null` if it never told.
    pub end_seconds: Option<f64>,
    /// How that ended; `unknown` if it never told: it was killed, or runs on.
    pub exit_type: ExitType,
    /// What that returned, if it returned.
    pub status: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// The main ones that it knew.
    pub resources: BTreeMap<String, Reading>,
}

/// A parallel job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What the launcher calls it; empty if it does not.
    pub id: String,
    /// Who says so: `slurm`, `openmpi`, `pmi`.
    pub launcher: String,
    /// How many ranks there are.
    pub ranks_total: u32,
    /// Those that have a report, in the order of their numbers.
    pub ranks: Vec<RankUse>,
    /// Ranks with a report that are not in that list.
    pub ranks_left_out: u64,
    /// Numbers of ranks without a report: they run on, or nobody wrote one.
    pub missing: Vec<u32>,
    /// How many those are, also where not all are named.
    pub missing_total: u64,
}

/// What one rank of a job used, shortly: all of it is in its own report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankUse {
    /// Its number, from 0 on.
    pub rank: u32,
    /// The node that it ran on.
    pub node: String,
    /// How it ended.
    pub exit_type: ExitType,
    /// What it returned, if it returned.
    pub status: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// When it started, in seconds of UNIX time.
    pub start_seconds: f64,
    /// As in its report; `null` if it is unknown there.
    pub wall_seconds: Option<f64>,
    /// Likewise.
    pub cpu_seconds: Option<f64>,
    /// Likewise.
    pub resident_bytes_max: Option<f64>,
    /// Likewise.
    pub read_bytes: Option<f64>,
    /// Likewise.
    pub written_bytes: Option<f64>,
}

/// What ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// Tasks that are alike have one class: given, or the name of the program.
    pub class: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The folder in which it was started.
    pub folder: String,
    /// The tool that measured it: `skopos` and its version, or the one that it was imported from.
    pub monitor: String,
    /// Its place in a parallel job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    /// It was running before its monitor: all that adds up is since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

/// A task that was running before its monitor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attached {
    /// The process that was named.
    pub pid: i32,
    /// How long it had run by then, in seconds; `null` if that is unknown.
    pub after_seconds: Option<f64>,
}

/// `process 4711, which had run for 2 h 05 m: what adds up is since then`.
impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if let Some(seconds) = self.after_seconds {
            write!(f, ", which had run for {}", amount(seconds, "seconds"))?;
        }
        f.write_str(": what adds up is since then")
    }
}

/// The place of a task in a parallel job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rank {
    /// What the launcher calls the job.
    pub job: String,
    /// This task's number in it, from 0 on.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// Who says so: `slurm`, `openmpi`, `pmi`.
    pub launcher: String,
}

/// Where it ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The node's name.
    pub node: String,
    /// The kernel's release.
    pub kernel: String,
    /// Cores that the task could use.
    pub cores: u32,
    /// Memory of the machine.
    pub memory_bytes: u64,
}

/// A limit that was set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitSet {
    /// The resource's name.
    pub name: String,
    /// The most that was allowed, in the unit.
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

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Of its own, by a signal, or for a limit.
    pub exit_type: ExitType,
    /// What its first process returned, if it returned.
    pub status: Option<i32>,
    /// The signal that ended its first process, if one did.
    pub signal: Option<i32>,
    /// Each limit that was exceeded: `memory: 5.1 GiB > 4 GiB`.
    pub limits: Vec<String>,
    /// The process that used most of what was exceeded.
    pub guilty: Option<String>,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitType {
    /// It returned, with zero or not.
    Normal,
    /// A signal that it did not catch.
    Signal,
    /// It was ended because it exceeded a limit.
    Limit,
    /// It runs on: the monitor was told to let go of it.
    Running,
    /// It has ended, and nobody told how.
    Unknown,
}

/// What was measured of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The value in the resource's unit; `null` if it is unknown.
    pub value: Option<f64>,
    /// The unit.
    pub unit: String,
    /// The mechanism that measured it; empty if it is unknown.
    pub method: String,
    /// What of the task it covers.
    pub completeness: Completeness,
    /// How far off it may be at most, in the unit; `null` if nothing bounds it.
    pub error_bound: Option<f64>,
    /// Why it is unknown, or what is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What of the task a reading covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completeness {
    /// Nothing: it is unknown.
    None,
    /// What was seen when it was looked: peaks between two looks are missing, and so are processes
    /// that lived between two.
    Sampled,
    /// At least this much: something is known to be missing.
    AtLeast,
    /// All of it.
    All,
}

impl Reading {
    /// A resource of which nothing is known, and why.
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
    /// Its name, as in the readings' `method`.
    pub name: String,
    /// True if it measured.
    pub used: bool,
    /// Why it did not, or what it was there for.
    pub why: String,
}

/// What the monitor itself took while the task ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Its processor time.
    pub cpu_seconds: f64,
    /// Its resident memory at its largest.
    pub resident_bytes_max: u64,
    /// How often it stopped a process of the task to look at it.
    pub stops: u64,
}

/// Something that stood out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is.
    pub what: String,
    /// What one could do.
    pub advice: String,
}

/// One process of the task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// That of the process that started it.
    pub parent: i32,
    /// Its command line, cut if it is long; the name of the program if it is not known.
    pub command: String,
    /// When it was first seen, in seconds since the task started.
    pub start_seconds: f64,
    /// When it ended; `null` if it outlived the monitor's look.
    pub end_seconds: Option<f64>,
    /// What it returned, if it returned.
    pub status: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Processor time; `null` if it ended unseen.
    pub cpu_seconds: Option<f64>,
    /// Its largest resident memory.
    pub resident_bytes_max: Option<u64>,
    /// Bytes that it asked to read, and those of all children that it waited for.
    pub read_bytes: Option<u64>,
    /// Bytes that it asked to write, and those of all children that it waited for.
    pub written_bytes: Option<u64>,
}
