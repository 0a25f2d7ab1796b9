//! Asks the kernel for the datagrams that it dropped at a full socket.

use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

/// Fields of `SO_MEMINFO`, and the place of the drops among them (`SK_MEMINFO_DROPS`).
const FIELDS: usize = 9;
const DROPS: usize = 8;

/// Returns the number of datagrams that the kernel dropped since the socket was opened, because their receiver was too
/// slow; `None` before Linux 4.12.
pub fn of(socket: &UdpSocket) -> Option<u64> {
    let mut fields = [0u32; FIELDS];
    let mut bytes = size_of_val(&fields) as libc::socklen_t;
    // SAFETY: the kernel writes at most the stated number of bytes to `fields`, and the number to `bytes`; both
    // outlive the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            fields.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    let whole = bytes as usize == size_of_val(&fields);
    (answer == 0 && whole).then(|| u64::from(fields[DROPS]))
}
