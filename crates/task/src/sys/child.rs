//! Forks the task's first process and turns it into the program.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;

use super::pid::{self, Pid};
use super::{groups, seccomp, signals, started};

/// The settings of a child between fork and exec. Everything is made before the fork, because a child
/// of a process with threads may not allocate.
pub(crate) struct Child<'a> {
    pub(crate) program: &'a CString,
    pub(crate) arguments: &'a [CString],
    pub(crate) environment: &'a [CString],
    /// The seccomp filter that it installs.
    pub(crate) filter: Option<&'a seccomp::Filter>,
    /// The control group of version 2 into which it is forked, if the kernel allows that.
    pub(crate) group: Option<BorrowedFd<'a>>,
    /// The files with which it enters control groups of version 1, and the descriptor that it closes
    /// once it has.
    pub(crate) groups: Option<(&'a [CString], BorrowedFd<'a>)>,
    /// The signals that were blocked before the monitor blocked its own.
    pub(crate) mask: &'a libc::sigset_t,
    /// The child becomes the program once this is written to, and exits once it is closed instead.
    pub(crate) gate: BorrowedFd<'a>,
    /// The other end of the gate. The child closes its copy: if it kept one, its gate would stay open
    /// after the monitor's death.
    pub(crate) gate_end: BorrowedFd<'a>,
    /// The pipe to which it writes the error number if exec fails.
    pub(crate) exec_error: BorrowedFd<'a>,
}

/// Forks a child that waits at its gate and then becomes the program.
pub(crate) fn spawn(child: &Child<'_>) -> io::Result<Pid> {
    // SAFETY: asks for the id of this process.
    let monitor = unsafe { libc::getpid() };
    let vector = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (vector(child.arguments), vector(child.environment));
    // SAFETY: the child calls only what may be called after a fork, on memory made before.
    match unsafe {
        child.group.and_then(|group| groups::fork_into(group)).unwrap_or_else(|| libc::fork())
    } {
        -1 => Err(io::Error::last_os_error()),
        0 => become_program(child, monitor, &arguments, &environment),
        pid => Ok(pid),
    }
}

fn become_program(
    child: &Child<'_>,
    monitor: Pid,
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
) -> ! {
    // SAFETY: raw system calls on descriptors and strings that were made before the fork and live
    // as long as this process image; nothing is allocated, and what is changed is this process's own.
    unsafe {
        pid::die_with(monitor);
        // Before the filter, which might ask about a call of `close`.
        libc::close(child.gate_end.as_raw_fd());
        if let Some((groups, ready)) = child.groups {
            groups::join(groups);
            libc::close(ready.as_raw_fd());
        }
        if let Some(filter) = child.filter {
            seccomp::install_and_send(filter);
        }
        // The gate is polled and not read, so that no byte counts as read by the task.
        let mut gate =
            libc::pollfd { fd: child.gate.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        while libc::poll(&raw mut gate, 1, -1) < 0 && *libc::__errno_location() == libc::EINTR {}
        if gate.revents & libc::POLLIN == 0 {
            // The monitor died before it opened the gate.
            libc::_exit(libc::EXIT_FAILURE);
        }
        // From here on the task is on its own: it outlives its monitor.
        libc::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0, 0);
        started::restore();
        libc::sigprocmask(libc::SIG_SETMASK, child.mask, ptr::null_mut());
        libc::execvpe(child.program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        let code = *libc::__errno_location();
        libc::write(
            child.exec_error.as_raw_fd(),
            (&raw const code).cast::<c_void>(),
            size_of::<c_int>(),
        );
        libc::_exit(127)
    }
}

/// Replaces this process by a program, with the signals that this process was started with. Returns
/// the error if that fails.
pub(crate) fn exec_unmonitored(arguments: &[CString]) -> io::Error {
    let vector: Vec<_> = arguments.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
    // SAFETY: the strings end with zero and outlive the call, and so does the list of them, which ends
    // with a null pointer; the mask is one that this process had.
    unsafe {
        started::restore();
        if let Some(mask) = signals::original_mask() {
            libc::sigprocmask(libc::SIG_SETMASK, mask, ptr::null_mut());
        }
        libc::execvp(vector[0], vector.as_ptr());
    }
    io::Error::last_os_error()
}
