//! Process ids, and signals to processes.

use std::ffi::c_int;

/// A process id.
pub(crate) type Pid = libc::pid_t;

/// Sends a signal; false if the process does not exist or may not be signalled.
pub(crate) fn kill(pid: Pid, signal: c_int) -> bool {
    // SAFETY: touches no memory.
    unsafe { libc::kill(pid, signal) == 0 }
}
