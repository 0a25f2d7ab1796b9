//! How a child gets into control groups by itself. Who puts another process into one waits until all
//! processors have come by (a grace period of RCU, some ten milliseconds), because the other may be starting
//! a thread just then; who is made there, or puts itself there alone, need not.

use std::ffi::{CString, c_long};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;

use super::pid::Pid;

/// `CLONE_INTO_CGROUP`, which libc has as a number that is too small for it.
const INTO_GROUP: u64 = 1 << 33;

/// Forks a child that is in a control group of version 2 from the beginning. `None` if the kernel does not
/// have it: the group is not for processes, or `clone3` is forbidden here.
///
/// # Safety
/// As of `fork`: the child calls only what may be called then.
pub(super) unsafe fn fork_into(group: BorrowedFd<'_>) -> Option<Pid> {
    // SAFETY: all zero is a value of it.
    let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
    how.flags = INTO_GROUP;
    how.exit_signal = libc::SIGCHLD as u64;
    how.cgroup = group.as_raw_fd() as u64;
    // SAFETY: as `fork` does it; `how` is as large as it says.
    let pid: c_long = unsafe { libc::syscall(libc::SYS_clone3, &raw const how, size_of_val(&how)) };
    (pid >= 0).then_some(pid as Pid)
}

/// Puts this thread, which is alone, into control groups of version 1, each by its file `tasks`. What does not
/// work the monitor does, later and slower. The byte that is written goes by a pipe, so that it does not count
/// as one that the task wrote.
///
/// # Safety
/// Nothing but system calls, on strings that were made before: it may be called after a fork.
pub(super) unsafe fn join(groups: &[CString]) {
    let own = b"0";
    let mut pipe = [0; 2];
    // SAFETY: numbers of descriptors are written where there is room for two; the byte that is given to the
    // pipe is there as long as the program is; the other calls are about descriptors that are opened here.
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
