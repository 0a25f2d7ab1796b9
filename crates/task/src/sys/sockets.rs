//! Who is at the other end of a socket. rustix tells it too, but has no value for a process that this one
//! cannot see.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::fs::Uid;

use super::pid::Pid;

/// The process at the other end, and its user, when it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// 0 for one of a namespace that is not seen from here.
    pub(crate) pid: Pid,
    pub(crate) user: Uid,
}

/// Who is at the other end of a connection on this machine.
pub(crate) fn peer(connection: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and at most `size` bytes are written to `who`, which has as many.
    let got = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut size,
        )
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { pid: who.pid, user: Uid::from_raw(who.uid) })
}
