//! `ptrace`, which the C library declares as variadic and unsafe.

use std::ffi::c_int;
use std::io;

use super::pid::Pid;

/// The events of a thread that does not trace the threads that it starts, but the processes.
const PROCESSES: c_int = libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT;

/// Begins to trace a thread and all threads that it will start. If the tracer dies, they run on
/// untraced.
pub(crate) fn seize(pid: Pid) -> io::Result<()> {
    let options = PROCESSES | libc::PTRACE_O_TRACECLONE;
    // SAFETY: the call reads and writes no memory of ours.
    check(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, options) })
}

/// Threads that a stopped thread starts from now on are not traced.
pub(crate) fn leave_new_threads(pid: Pid) -> io::Result<()> {
    // SAFETY: as in `seize`.
    check(unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, PROCESSES) })
}

/// Stops tracing a stopped thread, which goes on.
pub(crate) fn release(pid: Pid) -> io::Result<()> {
    // SAFETY: as in `seize`.
    check(unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0) })
}

/// Continues a stopped thread and delivers this signal, or none if it is 0.
pub(crate) fn go_on(pid: Pid, signal: c_int) -> io::Result<()> {
    // SAFETY: as in `seize`.
    check(unsafe { libc::ptrace(libc::PTRACE_CONT, pid, 0, signal) })
}

/// Leaves a thread stopped by a signal such as SIGTSTP until SIGCONT arrives.
pub(crate) fn stay_stopped(pid: Pid) -> io::Result<()> {
    // SAFETY: as in `seize`.
    check(unsafe { libc::ptrace(libc::PTRACE_LISTEN, pid, 0, 0) })
}

/// Returns the message of a ptrace event: the id of the new thread, or the status at exit.
pub(crate) fn event_message(pid: Pid) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one `unsigned long` there.
    check(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0, &raw mut message) })?;
    Ok(message)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
