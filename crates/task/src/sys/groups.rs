//! Lets a child enter its control groups by itself. To move another process into a group, the
//! kernel waits for a grace period of RCU (some ten milliseconds), because that process may be
//! starting a thread. A process that is forked into a group, or enters it alone, does not wait.

use std::ffi::{CString, c_long};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;

use super::pid::Pid;

/// `CLONE_INTO_CGROUP`. The constant of libc has a type that is too small for it.
const INTO_GROUP: u64 = 1 << 33;

/// Forks a child into a control group of version 2. Returns `None` if the kernel refuses: the group
/// may not contain processes, or `clone3` is forbidden here.
///
/// # Safety
/// The rule of `fork`: the child may only make calls that are allowed after a fork.
pub(super) unsafe fn fork_into(group: BorrowedFd<'_>) -> Option<Pid> {
    // SAFETY: all zero is a value of `clone_args`.
    let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
    how.flags = INTO_GROUP;
    how.exit_signal = libc::SIGCHLD as u64;
    how.cgroup = group.as_raw_fd() as u64;
    // SAFETY: the same effect as `fork`; `how` has the size that is passed.
    let pid: c_long = unsafe { libc::syscall(libc::SYS_clone3, &raw const how, size_of_val(&how)) };
    (pid >= 0).then_some(pid as Pid)
}

/// Moves this process, which has one thread, into control groups of version 1 through the file
/// `tasks` of each. If that fails, the monitor does it later, which is slower. The byte is written
/// through a pipe, so that it does not count as written by the task.
///
/// # Safety
/// Makes system calls only, on strings made before, so it may be called after a fork.
pub(super) unsafe fn join(groups: &[CString]) {
    let own = b"0";
    let mut pipe = [0; 2];
    // SAFETY: `pipe2` writes two descriptors where there is room for two; the byte given to the
    // pipe lives as long as the program; the other calls use descriptors opened here.
    unsafe {
        if libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return;
        }
        for group in groups {
            let bytes =
                libc::iovec { iov_base: own.as_ptr().cast_mut().cast(), iov_len: own.len() };
            let file = libc::open(group.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if file >= 0 {
                if libc::vmsplice(pipe[1], &raw const bytes, 1, 0) == 1 {
                    libc::splice(pipe[0], ptr::null_mut(), file, ptr::null_mut(), 1, 0);
                }
                libc::close(file);
            }
        }
        libc::close(pipe[0]);
        libc::close(pipe[1]);
    }
}
