//! A process of the task, identified by its id and its start time, so that a signal never reaches
//! another process that got the same id.

use std::ffi::c_int;
use std::io;

use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::proc::{self, Stat};
use crate::sys::{self, Pid};

/// A process of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) pid: Pid,
    /// Its start time, in clock ticks since boot; `None` if it exited before this was read.
    pub(crate) started: Option<u64>,
}

impl Member {
    pub(crate) fn new(pid: Pid, stat: &Stat) -> Self {
        Self { pid, started: Some(stat.started_ticks) }
    }

    /// True if this process is alive; false if only another process with its id is.
    pub(crate) fn is_alive(&self) -> bool {
        proc::stat(self.pid)
            .is_some_and(|stat| !stat.is_zombie && Some(stat.started_ticks) == self.started)
    }

    /// Sends it a signal. Returns false if this user may not do that. A process that has exited
    /// counts as a success.
    pub(crate) fn signal(&self, signal: c_int) -> bool {
        let (id, named) =
            (rustix::process::Pid::from_raw(self.pid), Signal::from_named_raw(signal));
        let handle = id.and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok());
        // The handle refers to the process that had the id when it was opened. If the id belongs to
        // this member after that, it belonged to this member then.
        if !self.is_alive() {
            return true;
        }
        if let (Some(handle), Some(named)) = (handle, named) {
            return pidfd_send_signal(handle, named) != Err(Errno::PERM);
        }
        // The kernel has no process handles (before Linux 5.3), or there is no descriptor left for
        // one. Only a moment lies between the check and the signal.
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
    fn a_process_that_reuses_an_id_gets_no_signal() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("it starts");
        let pid = child.id() as Pid;
        let started = proc::stat(pid).expect("it runs").started_ticks;
        Member { pid, started: Some(started - 1) }.signal(libc::SIGKILL);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(child.try_wait().expect("asked").is_none(), "another process was meant");
        Member { pid, started: Some(started) }.signal(libc::SIGTERM);
        assert_eq!(child.wait().expect("it ends").signal(), Some(libc::SIGTERM));
    }
}
