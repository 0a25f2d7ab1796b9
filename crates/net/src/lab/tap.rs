//! TAP interfaces: an interface whose frames a program reads and writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

use crate::Error;

/// Flags of `TUNSETIFF`: frames with Ethernet headers, without a header of the driver.
const TAP: libc::c_short = 0x0002;
const WITHOUT_HEADER: libc::c_short = 0x1000;

/// The request of an interface: its name, and flags in a union of 24 bytes.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// Makes a TAP interface in the network namespace of this thread. It lives as long as the file.
///
/// # Errors
/// The kernel has no TUN driver, the name is taken, or this user may not make interfaces.
pub(super) fn open(name: &str) -> Result<File, Error> {
    let failed = |e| Error::system(format!("make the interface {name} with /dev/net/tun"))(e);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(failed)?;
    let mut request =
        Request { name: [0; libc::IFNAMSIZ], flags: TAP | WITHOUT_HEADER, rest: [0; 22] };
    // The last byte stays zero.
    let most = request.name.len() - 1;
    request.name.iter_mut().take(most).zip(name.bytes()).for_each(|(to, from)| *to = from);
    // SAFETY: the request outlives the call, which reads and writes no more than its 40 bytes.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if answer < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    Ok(file)
}
