//! A task that was running before its monitor: finds it, and remembers what it had used until then.
//!
//! What a process had used is read of parents before their children: a child that is waited for between
//! two readings is then missing, which shows, and never in both. If one is, all are read again.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::process::{PidfdFlags, pidfd_open};
use skopos_model::task::Attached;

use crate::family;
use crate::proc::{self, Io};
use crate::seen::Seen;
use crate::sys::Pid;

/// Why a process cannot be a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Nobody has this id.
    #[error("there is no process {0}")]
    Missing(i32),
    /// It has ended and waits for its parent.
    #[error("process {0} has ended already")]
    Ended(i32),
    /// It is the id of a thread.
    #[error("{thread} is a thread of process {process}")]
    Thread {
        /// The id that was named.
        thread: i32,
        /// Whose it is.
        process: i32,
    },
    /// It is the monitor.
    #[error("{0} is this monitor itself")]
    Own(i32),
    /// All descends from it.
    #[error("1 is the process from which all others descend")]
    Init,
    /// It is no program.
    #[error("{pid} is the kernel's own: {name}")]
    Kernel {
        /// The id that was named.
        pid: i32,
        /// What it is called, in brackets.
        name: String,
    },
    /// The kernel has no handles of processes.
    #[error("process {pid} cannot be held: {why}")]
    NoHandle {
        /// The id that was named.
        pid: i32,
        /// What the kernel said.
        why: String,
    },
}

/// How often all is read again because a process was gone when its turn came: on a machine that does
/// not stand still nobody gets further by more.
const MAX_READINGS: usize = 16;

/// A process that runs.
pub(crate) struct Found {
    pub(crate) pid: Pid,
    /// Becomes readable when it ends.
    pub(crate) handle: OwnedFd,
    pub(crate) command: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) attached: Attached,
}

/// What processes that were found had used by then, those included for which they had waited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    /// Processor time without that of children.
    pub(crate) own_seconds: f64,
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) io: Io,
    /// Processes whose counts of bytes may not be read.
    pub(crate) without_io: u64,
    pub(crate) processes: u64,
}

impl Found {
    /// Finds a process that can be a task.
    pub(crate) fn new(pid: Pid) -> Result<Self, Unfit> {
        if pid == std::process::id() as Pid {
            return Err(Unfit::Own(pid));
        }
        if pid == 1 {
            return Err(Unfit::Init);
        }
        let handle_of = rustix::process::Pid::from_raw(pid).ok_or(Unfit::Missing(pid))?;
        let (process, stat) = (proc::process_of(pid), proc::stat(pid).ok_or(Unfit::Missing(pid))?);
        if let Some(process) = process.filter(|process| *process != pid) {
            return Err(Unfit::Thread { thread: pid, process });
        }
        if stat.is_zombie {
            return Err(Unfit::Ended(pid));
        }
        if stat.is_kernels {
            return Err(Unfit::Kernel { pid, name: proc::name(pid).unwrap_or_default() });
        }
        let handle = pidfd_open(handle_of, PidfdFlags::empty())
            .map_err(|e| Unfit::NoHandle { pid, why: e.to_string() })?;
        let up = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let up = up.split_whitespace().next().and_then(|s| s.parse::<f64>().ok());
        let started = stat.started_ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Ok(Self {
            pid,
            handle,
            command: proc::words(pid),
            folder: fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default(),
            attached: Attached { pid, after_seconds: up.map(|up| (up - started).max(0.0)) },
        })
    }
}

/// All processes of the task become known, and what they used is remembered. Called once those that
/// tell of births do so.
pub(crate) fn remember(seen: &mut Seen) {
    let mut is_whole = false;
    for _ in 0..MAX_READINGS {
        let mut all = family::members(seen);
        // A parent is older than its child.
        all.sort_by_key(|member| (member.started, member.pid));
        let mut sum = Before::default();
        is_whole = true;
        for pid in all.iter().map(|member| member.pid) {
            let Some(stat) = proc::stat(pid) else {
                is_whole = false;
                continue;
            };
            seen.born(pid, stat.parent);
            let before = before(pid, &stat);
            sum += before;
            seen.had_used(pid, before);
        }
        seen.before = sum;
        if is_whole {
            break;
        }
    }
    seen.is_torn = !is_whole;
}

fn before(pid: Pid, stat: &proc::Stat) -> Before {
    let io = proc::io(pid);
    Before {
        own_seconds: stat.user_seconds + stat.system_seconds,
        user_seconds: stat.total_user_seconds,
        system_seconds: stat.total_system_seconds,
        minor_faults: stat.minor_faults,
        major_faults: stat.major_faults,
        io: io.unwrap_or_default(),
        without_io: u64::from(io.is_none()),
        processes: 1,
    }
}

impl Before {
    /// How far off the sum of processor times may be: the kernel hands them out in whole ticks, four of
    /// each process.
    pub(crate) fn tick_bound_seconds(&self) -> f64 {
        4.0 * self.processes as f64 / rustix::param::clock_ticks_per_second() as f64
    }
}

impl std::ops::AddAssign for Before {
    fn add_assign(&mut self, other: Self) {
        self.own_seconds += other.own_seconds;
        self.user_seconds += other.user_seconds;
        self.system_seconds += other.system_seconds;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.io += other.io;
        self.without_io += other.without_io;
        self.processes += other.processes;
    }
}
