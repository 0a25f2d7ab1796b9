//! Process ids, signals to processes, and the priority of the monitor.

use std::ffi::c_int;

/// A process id.
pub(crate) type Pid = libc::pid_t;

/// Sends a signal; false if the process does not exist or may not be signalled.
pub(crate) fn kill(pid: Pid, signal: c_int) -> bool {
    // SAFETY: touches no memory.
    unsafe { libc::kill(pid, signal) == 0 }
}

/// Lets the calling thread run before all ordinary threads; its children do not inherit this. False
/// if this user may not do that.
pub(crate) fn run_first() -> bool {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads `lowest` during the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &lowest) == 0 }
}
