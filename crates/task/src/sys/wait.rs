//! `waitid` and `wait4`: exits and stops of children and traced threads.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use super::pid::Pid;

/// An event of a child or of a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A thread exited; the last thread of a process stands for the process. It is not reaped yet.
    Ended { pid: Pid, status: Status },
    /// A traced thread stopped, with the signal and the ptrace event or 0.
    Stopped { pid: Pid, signal: c_int, event: c_int },
}

/// The exit status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Exited(i32),
    Signalled(i32),
}

/// Returns the next event without reaping exited processes; `None` if there is none at present.
pub(crate) fn next_event() -> io::Result<Option<Event>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: `info` is as large as the call wants, and all zero is a value of it.
    let info = unsafe {
        if libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), flags) < 0 {
            let e = io::Error::last_os_error();
            return if e.raw_os_error() == Some(libc::ECHILD) { Ok(None) } else { Err(e) };
        }
        info.assume_init()
    };
    // SAFETY: after waitid these fields are the ones that are set.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    Ok(Some(match info.si_code {
        libc::CLD_EXITED => Event::Ended { pid, status: Status::Exited(status) },
        libc::CLD_KILLED | libc::CLD_DUMPED => {
            Event::Ended { pid, status: Status::Signalled(status & 0x7f) }
        }
        _ => {
            take_stop(pid)?;
            Event::Stopped { pid, signal: status & 0x7f, event: status >> 8 }
        }
    }))
}

/// True if the monitor has a child that is not reaped.
pub(crate) fn has_children() -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is as large as the call wants; it is not read.
    unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), flags) == 0 }
}

/// Consumes the report of a stop, so that the next one becomes visible.
fn take_stop(pid: Pid) -> io::Result<()> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
    // SAFETY: as in `next_event`.
    let done = unsafe { libc::waitid(libc::P_PID, pid.unsigned_abs(), info.as_mut_ptr(), flags) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The kernel's counts for a process and all children that it waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    /// The greatest resident size: of all programs that the process was, of those of its children, and
    /// of its parent's memory that it had until its first exec.
    pub(crate) resident_bytes_max: u64,
}

/// Reaps an exited process; `None` if another process reaped it.
pub(crate) fn reap(pid: Pid) -> Option<Usage> {
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both places are as large as the call wants; all zero is a value of either.
    let usage = unsafe {
        if libc::wait4(pid, &raw mut status, libc::__WALL | libc::WNOHANG, usage.as_mut_ptr())
            != pid
        {
            return None;
        }
        usage.assume_init()
    };
    Some(Usage {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        minor_faults: usage.ru_minflt.unsigned_abs(),
        major_faults: usage.ru_majflt.unsigned_abs(),
        voluntary_switches: usage.ru_nvcsw.unsigned_abs(),
        involuntary_switches: usage.ru_nivcsw.unsigned_abs(),
        resident_bytes_max: usage.ru_maxrss.unsigned_abs() * 1024,
    })
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.unsigned_abs())
        + Duration::from_micros(time.tv_usec.unsigned_abs())
}

/// Returns the processor time and the peak resident bytes of this process.
pub(crate) fn own_usage() -> (Duration, u64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: as in `reap`; asking about oneself cannot fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let cpu = duration(usage.ru_utime) + duration(usage.ru_stime);
    (cpu, usage.ru_maxrss.unsigned_abs() * 1024)
}

/// Makes this process the parent of the task's orphans, so that it can reap them.
pub(crate) fn adopt_orphans() {
    // SAFETY: sets a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}
