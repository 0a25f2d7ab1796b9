//! The peer of a local socket. rustix provides it too, but without a value for a process that is
//! not visible from this namespace.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::fs::Uid;

use super::pid::Pid;

/// The process and user at the other end, at the time of its `connect` or `listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The process id; 0 if it is in a namespace that is not visible from here.
    pub(crate) pid: Pid,
    pub(crate) user: Uid,
}

/// Returns the peer of a local connection.
pub(crate) fn peer(connection: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and at most `size` bytes are written to `who`, which is that
    // large.
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
