//! The list of exited processes, bounded.

use skopos_model::task::Process;

use crate::sys::{Pid, Status};

/// The most processes that a report lists: as many as a person scrolls through, and few enough that
/// 100,000 short ones do not fill memory. The processes with the greatest usage stay.
pub(super) const MAX_LISTED: usize = 1000;

/// Processes that exited.
#[derive(Debug, Default)]
pub(super) struct Exited {
    processes: Vec<Process>,
    /// Number of processes that are not in the list.
    pub(super) left_out: u64,
}

impl Exited {
    /// Adds a process. If the list is full, the processes with the least usage are dropped.
    pub(super) fn push(&mut self, process: Process) {
        self.processes.push(process);
        if self.processes.len() < 2 * MAX_LISTED {
            return;
        }
        self.drop_lightest();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter()
    }

    /// The process of this id that exited last.
    pub(super) fn last(&self, pid: Pid) -> Option<&Process> {
        self.processes.iter().rev().find(|process| process.pid == pid)
    }

    pub(super) fn last_mut(&mut self, pid: Pid) -> Option<&mut Process> {
        self.processes.iter_mut().rev().find(|process| process.pid == pid)
    }

    /// The exit status of a process, if it is known.
    pub(super) fn status_of(&self, pid: Pid) -> Option<Status> {
        let process = self.last(pid)?;
        let signal = process.signal.map(Status::Signalled);
        process.status.map(Status::Exited).or(signal)
    }

    /// Returns these processes and those that still live, by start time, and the number of those
    /// left out.
    pub(super) fn into_list(mut self, live: impl Iterator<Item = Process>) -> (Vec<Process>, u64) {
        self.processes.extend(live);
        self.drop_lightest();
        let by_start = |a: &Process, b: &Process| a.start_seconds.total_cmp(&b.start_seconds);
        self.processes.sort_by(|a, b| by_start(a, b).then(a.pid.cmp(&b.pid)));
        (self.processes, self.left_out)
    }

    fn drop_lightest(&mut self) {
        self.processes.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        self.left_out += self.processes.len().saturating_sub(MAX_LISTED) as u64;
        self.processes.truncate(MAX_LISTED);
    }
}

/// The usage of a process as one number: a second of processor time weighs as much as a gigabyte of
/// memory.
fn weight(process: &Process) -> f64 {
    let memory = process.resident_bytes_max.unwrap_or(0) as f64 / 1e9;
    process.cpu_seconds.unwrap_or(0.0) + memory
}
