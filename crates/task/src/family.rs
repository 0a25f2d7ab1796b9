//! Which processes are the task's, and how one of them is sent a signal that no other can get.
//!
//! A task that was started here is all that descends from the monitor, to which its orphans come. Of a
//! task that was found running it is the process itself, what descends from it, and what was once seen
//! to: its orphans go elsewhere. There a process is known by its id and the time of its start, since
//! others reap it and its id may be given to another.

use std::collections::HashSet;
use std::ffi::c_int;

use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::proc;
use crate::seen::Seen;
use crate::sys::{self, Pid};

/// A process of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) pid: Pid,
    /// When it started, in ticks since the machine did; `None` for those that nobody else reaps.
    pub(crate) started: Option<u64>,
}

/// All that are there now.
pub(crate) fn members(seen: &Seen) -> Vec<Member> {
    let own = std::process::id() as Pid;
    if !seen.is_found() {
        let all = proc::descendants(own).into_iter();
        return all.map(|pid| Member { pid, started: None }).collect();
    }
    let known = seen.living_since().into_iter();
    let mut found: Vec<Member> = known.filter(Member::is_there).collect();
    let mut pids: HashSet<Pid> = found.iter().map(|member| member.pid).collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        let before = found.len();
        for pid in proc::children(parent.pid) {
            let stat = proc::stat(pid).filter(|s| s.parent == parent.pid && !s.is_zombie);
            // The monitor may descend from the task that it measures.
            let Some(stat) = stat.filter(|_| pid != own && !pids.contains(&pid)) else { continue };
            pids.insert(pid);
            found.push(Member { pid, started: Some(stat.started_ticks) });
        }
        // If it was another one by now, then so were its children.
        if !parent.is_there() {
            found.drain(before..).for_each(|member| {
                pids.remove(&member.pid);
            });
        }
    }
    found
}

impl Member {
    /// True if it lives, and not another with its id.
    fn is_there(&self) -> bool {
        proc::stat(self.pid)
            .is_some_and(|stat| !stat.is_zombie && Some(stat.started_ticks) == self.started)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: c_int) {
        if self.started.is_none() {
            sys::kill(self.pid, signal);
            return;
        }
        let pid = rustix::process::Pid::from_raw(self.pid);
        let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) else { return };
        // The handle is of whoever has the id when it is opened; if that is still the one that is
        // meant after that, it was so then.
        if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
            && self.is_there()
        {
            // It may have ended meanwhile, which is what is wanted.
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn one_that_has_the_id_of_another_is_sent_nothing() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("it starts");
        let pid = child.id() as Pid;
        let started = proc::stat(pid).expect("it runs").started_ticks;
        Member { pid, started: Some(started - 1) }.signal(libc::SIGKILL);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(child.try_wait().expect("asked").is_none(), "it was another one");
        Member { pid, started: Some(started) }.signal(libc::SIGTERM);
        assert_eq!(child.wait().expect("it ends").signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn of_a_found_task_the_tree_of_its_process_is_known_and_nothing_else() {
        let script = "sleep 61 & sleep 61 & wait";
        let mut shell = Command::new("sh").args(["-c", script]).spawn().expect("it starts");
        let mut other = Command::new("sleep").arg("61").spawn().expect("it starts");
        let pid = shell.id() as Pid;
        let mut seen = Seen::found();
        seen.born(pid, 1);
        let mut tree = members(&seen);
        while tree.len() < 3 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            tree = members(&seen);
        }
        assert!(tree.iter().all(|member| member.pid != other.id() as Pid));
        tree.iter().for_each(|member| member.signal(libc::SIGKILL));
        shell.wait().expect("it ends");
        assert!(other.try_wait().expect("asked").is_none());
        other.kill().expect("killed");
        other.wait().expect("it ends");
    }
}
