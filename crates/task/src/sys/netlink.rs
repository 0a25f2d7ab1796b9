//! Netlink sockets, through which the kernel sends messages. The layouts are those of
//! `linux/netlink.h`, in the machine's byte order.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use crate::bytes::{u16_at, u32_at};

/// The kernel's buffer for a monitor that is busy: some thousand messages.
const BUFFER_BYTES: c_int = 8 << 20;

/// The longest message that is read: two taskstats of a whole process are 1 KB.
const MAX_MESSAGE: usize = 8192;

/// Sizes of `struct nlmsghdr` and `struct nlattr`.
const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;

/// The type of a message with the result of a request.
pub(crate) const ERROR: u16 = 2;

/// Flags of requests.
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;

pub(crate) struct Netlink {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

/// One message: its type and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) body: &'a [u8],
}

impl Netlink {
    /// Opens a socket of this protocol that receives the messages of these groups.
    pub(crate) fn open(protocol: c_int, groups: u32) -> io::Result<Self> {
        let wanted = BUFFER_BYTES;
        let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the descriptor is new and has no other owner; the option and the address have the
        // sizes that are passed, and all zero is a value of the address.
        let socket = unsafe {
            let socket = libc::socket(libc::AF_NETLINK, flags, protocol);
            if socket < 0 {
                return Err(io::Error::last_os_error());
            }
            let socket = OwnedFd::from_raw_fd(socket);
            // Only administrators may exceed the usual size; a smaller buffer does for others.
            for option in [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF] {
                let size = size_of::<c_int>() as libc::socklen_t;
                let bytes = (&raw const wanted).cast();
                if libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, bytes, size) == 0
                {
                    break;
                }
            }
            let mut address: libc::sockaddr_nl = std::mem::zeroed();
            address.nl_family = libc::AF_NETLINK as _;
            address.nl_groups = groups;
            let size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
            if libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) < 0 {
                return Err(io::Error::last_os_error());
            }
            socket
        };
        Ok(Self { socket, buffer: vec![0; MAX_MESSAGE] })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// From now on only messages that this program of the kernel's socket filters passes arrive.
    pub(crate) fn filter(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        let program =
            libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
        let (socket, from) = (self.socket.as_raw_fd(), (&raw const program).cast());
        // SAFETY: the kernel reads the program, which has the stated length and outlives the call.
        let set = unsafe {
            libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, from, size)
        };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends a request that the kernel acknowledges.
    pub(crate) fn send(&self, kind: u16, body: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((REQUEST | ACKNOWLEDGE).to_ne_bytes());
        // A sequence number and a sender, which are not used.
        bytes.extend([0; 8]);
        bytes.extend(body);
        // SAFETY: reads the bytes of the buffer.
        let sent =
            unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the messages of the next packet; `None` if there is none at present.
    ///
    /// # Errors
    /// `ENOBUFS` if messages were lost. The socket stays readable.
    fn receive(&mut self) -> io::Result<Option<impl Iterator<Item = Message<'_>>>> {
        // SAFETY: the buffer has the size that is passed.
        let length = unsafe {
            let (to, size) = (self.buffer.as_mut_ptr().cast(), self.buffer.len());
            libc::recv(self.socket.as_raw_fd(), to, size, 0)
        };
        let Ok(length) = usize::try_from(length) else {
            let e = io::Error::last_os_error();
            return if e.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(e) };
        };
        Ok(Some(messages(self.buffer.get(..length).unwrap_or_default())))
    }

    /// Passes on all messages that have arrived, up to `most` packets. Returns the number of times
    /// that messages were lost.
    pub(crate) fn drain(&mut self, most: usize, mut each: impl FnMut(Message<'_>)) -> u64 {
        let mut lost = 0;
        for _ in 0..most {
            match self.receive() {
                Ok(Some(messages)) => messages.for_each(&mut each),
                Ok(None) => break,
                Err(_) => lost += 1,
            }
        }
        lost
    }

    /// Waits for the answer to a request: the first message other than an acknowledgement, or
    /// `None` if the request was only acknowledged.
    pub(crate) fn answer(&mut self) -> io::Result<Option<Vec<u8>>> {
        for _ in 0..ANSWERS {
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(
                self.socket.as_fd(),
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, Some(&ANSWER_TIME))?;
            let Some(first) = self.receive()?.and_then(|mut all| all.next()) else { continue };
            if first.kind != ERROR {
                return Ok(Some(first.body.to_vec()));
            }
            return match u32_at(first.body, 0).map(u32::cast_signed) {
                Some(0) => Ok(None),
                code => Err(io::Error::from_raw_os_error(-code.unwrap_or(-libc::EBADMSG))),
            };
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// The kernel answers at once; these bounds end the wait if it does not.
const ANSWERS: usize = 10;
const ANSWER_TIME: rustix::event::Timespec =
    rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Iterates over the messages in a packet, without one that is cut short.
fn messages(bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = u32_at(rest, 0)? as usize;
        let kind = u16_at(rest, 4)?;
        let body = rest.get(HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, body })
    })
}

/// Iterates over the attributes in a message: types and contents.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        // Two bits of the type are flags.
        let kind = u16_at(rest, 2)? & 0x3fff;
        let body = rest.get(ATTRIBUTE..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Encodes an attribute.
pub(crate) fn attribute(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((ATTRIBUTE + body.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// True in the initial namespace of process ids, which the kernel's messages use.
pub(crate) fn has_kernel_ids() -> bool {
    // PROC_PID_INIT_INO of `linux/proc_ns.h`.
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|to| to.as_os_str() == "pid:[4026531836]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_cut_short_is_left_out() {
        let attributes_of = |bytes: &[u8]| attributes(bytes).map(|(k, b)| (k, b.len())).collect();
        let mut bytes = attribute(7, b"abc");
        bytes.extend(attribute(8, &[1; 4]));
        let both: Vec<_> = attributes_of(&bytes);
        assert_eq!(both, [(7, 3), (8, 4)]);
        for end in 0..bytes.len() {
            let some: Vec<(u16, usize)> = attributes_of(&bytes[..end]);
            assert!(some.len() < 2 && messages(&bytes[..end]).count() == 0, "{end}");
        }
        let lie = [0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(attributes(&lie).count(), 0, "a length of zero ends the loop");
        assert_eq!(messages(&[0; 64]).count(), 0);
    }
}
