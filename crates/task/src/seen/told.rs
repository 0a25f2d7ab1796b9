//! What the kernel tells of processes later than it happened, in the order in which it happened, with the
//! time: nobody can be asked any more.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::Seen;
use crate::proc;
use crate::sys::{Pid, Status};

/// The clock that the kernel tells times of.
pub(super) fn monotonic_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32).as_nanos() as u64
}

impl Seen {
    fn seconds_at(&self, nanos: u64) -> f64 {
        nanos.saturating_sub(self.started_nanos) as f64 / 1e9
    }

    /// A process was there, the same program as its parent.
    pub(crate) fn told_born(&mut self, pid: Pid, parent: Pid, is_guest: bool, at_nanos: u64) {
        // Its end was lost, and the id is another's now.
        if self.knows(pid) {
            self.ended_at(pid, None, self.seconds_at(at_nanos));
        }
        let of_parent = self.live.get(&parent);
        let (name, command) = of_parent
            .map(|live| (live.name.clone(), live.process.command.clone()))
            .unwrap_or_default();
        self.enter(pid, parent, name, command, self.seconds_at(at_nanos));
        if is_guest {
            self.guest(pid);
        }
    }

    /// It became another program: its name, and its command line, both as the kernel keeps them.
    pub(crate) fn told_became(&mut self, pid: Pid, name: &[u8], command: &[u8]) {
        if let Some(live) = self.live.get_mut(&pid) {
            if live.is_guest {
                live.memory = None;
            }
            (live.is_guest, live.has_become) = (false, true);
            let name = name.split(|b| *b == 0).next().unwrap_or_default();
            live.name = format!("[{}]", String::from_utf8_lossy(name));
            live.process.command = proc::command_line(command).unwrap_or_else(|| live.name.clone());
        }
    }

    /// It was gone.
    pub(crate) fn told_ended(&mut self, pid: Pid, status: Status, at_nanos: u64) {
        self.ended_at(pid, Some(status), self.seconds_at(at_nanos));
    }

    /// So many there were in all: those that nobody could tell of are in no list.
    pub(crate) fn were(&mut self, processes_total: u64) {
        self.left_out += processes_total.saturating_sub(self.processes_total);
    }

    /// Processor time of one that ended, which is known only after its end.
    pub(crate) fn final_cpu(&mut self, pid: Pid, cpu_seconds: f64) {
        // The one that ended last is the one meant, if an id came twice.
        let ended = self.ended.iter_mut().rev().find(|process| process.pid == pid);
        if let Some(process) = ended {
            process.cpu_seconds = Some(cpu_seconds);
        }
    }
}
