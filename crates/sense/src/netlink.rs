//! Requests to the kernel over netlink(7), and the messages of its answers.
//!
//! A request asks for a list (`NLM_F_DUMP`). The answer is a number of datagrams, each with messages: a header of 16 bytes
//! (length, type, flags, sequence, port) and a payload of a fixed structure and attributes, all in the byte order of the
//! machine and padded to 4 bytes. The reader stops at a length that contradicts the rest: what came before it stands.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send,
    socket_with,
};

/// The kernel fills datagrams of a dump up to 32 KiB if the reader offers as much.
const BUFFER_BYTES: usize = 32 << 10;

/// The most datagrams of one answer: a million sockets. It ends a dump that the kernel never ends.
const MAX_DATAGRAMS: usize = 16 << 10;

/// The kernel answers from memory. A longer wait means that it does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

const HEADER_BYTES: usize = 16;
const ATTRIBUTE_HEADER_BYTES: usize = 4;

/// Types of messages that end an answer.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;

/// The bits of the type of an attribute that are its type.
const TYPE_MASK: u16 = 0x3fff;

/// A socket for requests to one subsystem, in the network namespace of the thread that opened it.
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket. `None` is the protocol 0, `NETLINK_ROUTE`.
    pub(crate) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { socket, sequence: 0, request: Vec::new(), buffer: vec![0; BUFFER_BYTES] })
    }

    /// Asks for a list, and passes the payload of each message to `take`.
    ///
    /// # Errors
    /// The kernel refuses the request, or does not answer.
    pub(crate) fn dump(
        &mut self,
        kind: u16,
        payload: &[u8],
        take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.ask(kind, DUMP, payload, take)
    }

    /// Asks for one thing, and passes the payload of the answer to `take`.
    ///
    /// # Errors
    /// The kernel refuses the request, or does not answer.
    pub(crate) fn get(
        &mut self,
        kind: u16,
        payload: &[u8],
        take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.ask(kind, REQUEST, payload, take)
    }

    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        payload: &[u8],
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let Self { socket, sequence, request, buffer } = self;
        *sequence = sequence.wrapping_add(1);
        request.clear();
        request.extend_from_slice(&((HEADER_BYTES + payload.len()) as u32).to_ne_bytes());
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(&flags.to_ne_bytes());
        request.extend_from_slice(&sequence.to_ne_bytes());
        request.extend_from_slice(&[0; 4]);
        request.extend_from_slice(payload);
        send(&*socket, request, SendFlags::empty())?;
        for _ in 0..MAX_DATAGRAMS {
            let received = match recv(&*socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, received)) => received.min(buffer.len()),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            let mut ended = None;
            // An earlier request that was given up may still be answered.
            let ours = messages(&buffer[..received]).filter(|m| m.sequence == *sequence);
            for message in ours {
                match message.kind {
                    DONE => ended = Some(Ok(())),
                    ERROR => ended = Some(outcome(message.payload)),
                    _ => take(message.payload),
                }
                if flags == REQUEST {
                    ended = ended.or(Some(Ok(())));
                }
            }
            if let Some(outcome) = ended {
                return outcome;
            }
        }
        Err(io::Error::other("the kernel does not end its answer"))
    }
}

/// Returns the error of a message of an error; 0 is success.
fn outcome(payload: &[u8]) -> io::Result<()> {
    match i32_at(payload, 0) {
        Some(0) | None => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message<'a> {
    kind: u16,
    sequence: u32,
    payload: &'a [u8],
}

/// Returns the messages of a datagram.
fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32_at(rest, 0)? as usize;
        let message = rest.get(..length)?;
        let payload = message.get(HEADER_BYTES..)?;
        let found = Message { kind: u16_at(message, 4)?, sequence: u32_at(message, 8)?, payload };

        rest = rest.get(padded(length)..).unwrap_or_default();
        Some(found)
    })
}

/// Returns the type and the payload of each attribute.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)? & TYPE_MASK;
        let payload = rest.get(ATTRIBUTE_HEADER_BYTES..length)?;
        rest = rest.get(padded(length)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// Returns the payload of the first attribute of a type.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, payload)| payload)
}

/// Appends an attribute.
pub(crate) fn put_attribute(into: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    let length = ATTRIBUTE_HEADER_BYTES + payload.len();
    into.extend_from_slice(&(length as u16).to_ne_bytes());
    into.extend_from_slice(&kind.to_ne_bytes());
    into.extend_from_slice(payload);
    into.resize(into.len() + padded(length) - length, 0);
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Reads two bytes at an offset; `None` beyond the end.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_ne_bytes)
}

/// Reads four bytes at an offset; `None` beyond the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_ne_bytes)
}

/// Reads four bytes at an offset, which may be negative; `None` beyond the end.
pub(crate) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    array_at(bytes, at).map(i32::from_ne_bytes)
}

/// Reads eight bytes at an offset; `None` beyond the end.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + payload.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&2_u16.to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(payload);
        bytes.resize(padded(bytes.len()), 0);
        bytes
    }

    #[test]
    fn a_datagram_that_is_cut_off_or_lies_gives_what_is_whole() {
        let bytes = [message(20, 1, b"abcde"), message(DONE, 1, &[0; 4])].concat();
        let kinds = |bytes: &[u8]| messages(bytes).map(|m| m.kind).collect::<Vec<_>>();
        assert_eq!(kinds(&bytes), [20, DONE]);
        assert_eq!(messages(&bytes).next().map(|m| m.payload), Some(&b"abcde"[..]));
        for length in 0..bytes.len() {
            assert!(kinds(&bytes[..length]).len() < 2, "{length}");
        }
        // A length below that of the header, 0 among them, ends it.
        for length in 0_u32..16 {
            let mut lies = bytes.clone();
            lies[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(kinds(&lies), [0; 0], "{length}");
        }
    }

    #[test]
    fn attributes_end_at_a_length_that_lies() {
        let mut bytes = Vec::new();
        put_attribute(&mut bytes, 1, b"eth0\0");
        put_attribute(&mut bytes, 2 | 0x8000, &7_u32.to_ne_bytes());
        let kinds = |bytes: &[u8]| attributes(bytes).map(|(kind, _)| kind).collect::<Vec<_>>();
        assert_eq!(kinds(&bytes), [1, 2]);
        assert_eq!(attribute(&bytes, 2).and_then(|payload| u32_at(payload, 0)), Some(7));
        assert_eq!(attribute(&bytes, 3), None);
        for length in 0..bytes.len() {
            assert!(kinds(&bytes[..length]).len() < 2, "{length}");
        }
        for length in [0_u16, 3, 900] {
            bytes[..2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(kinds(&bytes), [0; 0], "{length}");
        }
    }

    #[test]
    fn an_error_of_the_kernel_is_an_error() {
        assert!(outcome(&0_i32.to_ne_bytes()).is_ok() && outcome(&[]).is_ok());
        let refused = outcome(&(-1_i32).to_ne_bytes()).expect_err("EPERM");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(outcome(&i32::MIN.to_ne_bytes()).is_err());
    }

    #[test]
    fn this_kernel_lists_the_loopback() {
        let mut netlink = Netlink::open(None).expect("needs no privilege");
        let mut names = Vec::new();
        // RTM_GETLINK with an empty `ifinfomsg`; IFLA_IFNAME is 3.
        for _ in 0..2 {
            let take = |payload: &[u8]| {
                let name = payload.get(16..).and_then(|rest| attribute(rest, 3));
                names.extend(name.map(<[u8]>::to_vec));
            };
            netlink.dump(18, &[0; 16], take).expect("a list");
        }
        assert_eq!(names.iter().filter(|name| **name == b"lo\0").count(), 2);
    }
}
