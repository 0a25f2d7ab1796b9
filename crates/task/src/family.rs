//! Which processes are the task's, and how one of them is sent a signal that no other can get.
//!
//! A task that was started here is all that descends from the monitor, to which its orphans come. Of a
//! task that was found running it is the process itself, what descends from it, and what was once seen
//! to: its orphans go elsewhere. A process is known by its id and the time of its start, since its
//! parent reaps it, and its id may be given to another.

use std::collections::HashSet;
use std::ffi::c_int;
use std::io;

use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::proc::{self, Stat};
use crate::seen::Seen;
use crate::sys::{self, Pid};

/// A process of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) pid: Pid,
    /// When it started, in ticks since the machine did; `None` if it was gone before that was read.
    pub(crate) started: Option<u64>,
}

/// The ids of all that are there now.
pub(crate) fn pids(seen: &Seen) -> HashSet<Pid> {
    match seen.is_found() {
        true => members(seen).into_iter().map(|member| member.pid).collect(),
        false => proc::descendants(std::process::id() as Pid).into_iter().collect(),
    }
}

/// Those that are still to be ended. What a living process of the task has not waited for is over, and
/// for that one to forget; what is the monitor's to wait for is there until it has.
pub(crate) fn unended(seen: &Seen) -> Vec<Member> {
    if seen.is_found() {
        return members(seen);
    }
    let own = std::process::id() as Pid;
    let mut all = descendants(own);
    all.retain(|(_, stat)| !stat.is_zombie || stat.parent == own);
    all.iter().map(|(pid, stat)| Member::new(*pid, stat)).collect()
}

/// What descends from a process. Who has an id by now that was read a moment ago is left out, unless
/// it descends from there too.
fn descendants(own: Pid) -> Vec<(Pid, Stat)> {
    let all = proc::descendants(own);
    let ids: HashSet<Pid> = all.iter().copied().collect();
    let stats = all.into_iter().filter_map(|pid| Some((pid, proc::stat(pid)?)));
    stats.filter(|(_, stat)| stat.parent == own || ids.contains(&stat.parent)).collect()
}

/// All that are there now.
pub(crate) fn members(seen: &Seen) -> Vec<Member> {
    let own = std::process::id() as Pid;
    if !seen.is_found() {
        return descendants(own).iter().map(|(pid, stat)| Member::new(*pid, stat)).collect();
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
            found.push(Member::new(pid, &stat));
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
    fn new(pid: Pid, stat: &Stat) -> Self {
        Self { pid, started: Some(stat.started_ticks) }
    }

    /// True if it lives, and not another with its id.
    pub(crate) fn is_there(&self) -> bool {
        proc::stat(self.pid)
            .is_some_and(|stat| !stat.is_zombie && Some(stat.started_ticks) == self.started)
    }

    /// Sends it a signal. False if that is not permitted; it may have ended, which is what is wanted.
    pub(crate) fn signal(&self, signal: c_int) -> bool {
        let (id, named) =
            (rustix::process::Pid::from_raw(self.pid), Signal::from_named_raw(signal));
        let handle = id.and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
        // The handle is of whoever has the id when it is opened; if that is still the one that is
        // meant after that, it was so then.
        if !self.is_there() {
            return true;
        }
        if let (Some(handle), Some(named)) = (handle, named) {
            return pidfd_send_signal(handle, named) != Err(Errno::PERM);
        }
        // A kernel without handles (before Linux 5.3), or no descriptor is left for one: so only a
        // moment is between the look and the signal.
        let is_sent = sys::kill(self.pid, signal);
        is_sent || io::Error::last_os_error().raw_os_error() != Some(libc::EPERM)
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
        assert!(tree.iter().all(|member| member.signal(libc::SIGKILL)), "it is permitted");
        shell.wait().expect("it ends");
        assert!(other.try_wait().expect("asked").is_none());
        other.kill().expect("killed");
        other.wait().expect("it ends");
    }

    #[test]
    fn of_a_started_task_the_times_of_all_starts_are_known() {
        let script = "sleep 62 & wait";
        let mut shell = Command::new("sh").args(["-c", script]).spawn().expect("it starts");
        let is_of_it = |(pid, stat): &(Pid, Stat)| {
            *pid == shell.id() as Pid || stat.parent == shell.id() as Pid
        };
        let own = std::process::id() as Pid;
        let mut tree: Vec<Member> = Vec::new();
        while tree.len() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let all = descendants(own);
            tree = all.iter().filter(|p| is_of_it(p)).map(|(p, s)| Member::new(*p, s)).collect();
        }
        assert!(tree.iter().all(|member| member.started.is_some() && member.is_there()));
        assert!(tree.iter().all(|member| member.signal(libc::SIGKILL)), "it is permitted");
        shell.wait().expect("it ends");
    }
}
