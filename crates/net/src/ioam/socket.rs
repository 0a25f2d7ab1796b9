//! Options of sockets: sends traces and receives them.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::ptr;

use super::trace::{Trace, TraceRequest, trace_of};
use crate::Error;

/// Bytes for the hop-by-hop options of a packet: at most 256 units of 8, and the header of the message.
const CONTROL_BYTES: usize = 2048 + 64;

/// Gives the packets of a socket a trace from now on.
///
/// # Errors
/// The trace is too long, the socket is not of IPv6, or this process has no CAP_NET_RAW.
pub fn set_trace(socket: &UdpSocket, request: TraceRequest) -> Result<(), Error> {
    let header = request.options_header()?;
    set(socket, libc::IPV6_HOPOPTS, &header, "give packets an IOAM trace")
}

/// Lets a socket receive hop-by-hop options beside packets.
///
/// # Errors
/// The socket is not of IPv6.
pub fn receive_options(socket: &UdpSocket) -> Result<(), Error> {
    set(socket, libc::IPV6_RECVHOPOPTS, &1i32.to_ne_bytes(), "receive hop-by-hop options")
}

fn set(
    socket: &UdpSocket,
    option: libc::c_int,
    value: &[u8],
    doing: &'static str,
) -> Result<(), Error> {
    let bytes = value.len() as libc::socklen_t;
    // SAFETY: the value outlives the call, which reads the stated number of bytes.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            option,
            value.as_ptr().cast(),
            bytes,
        )
    };
    if answer < 0 { Err(Error::system(doing)(io::Error::last_os_error())) } else { Ok(()) }
}

/// A buffer for control messages, aligned as their headers are.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; CONTROL_BYTES]);

/// A packet that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its bytes, of which the buffer has as many as fit.
    pub bytes: usize,
    /// The address of its sender.
    pub from: Ipv6Addr,
    /// Its trace, if it has one, or the reason why that cannot be read.
    pub trace: Result<Option<Trace>, String>,
}

/// Receives a packet with its trace. [`receive_options`] must have been called before.
///
/// # Errors
/// The socket failed or would wait.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Result<Received, Error> {
    let mut control = Control([MaybeUninit::zeroed(); CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all fields of a message may be zero.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: and so may those of an address.
    let mut from: libc::sockaddr_in6 = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_name = (&raw mut from).cast();
    message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>();
    // SAFETY: the buffers and the address outlive the call, and the message has their lengths.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let bytes = usize::try_from(bytes)
        .map_err(|_| Error::system("receive a packet")(io::Error::last_os_error()))?;
    // SAFETY: the kernel has filled the message and its control buffer, which are both still there.
    let header = unsafe { options_of(&message) };
    let trace = header.map(|header| trace_of(&header)).transpose();
    let trace = trace.map(Option::flatten).map_err(|e| e.to_string());
    Ok(Received { bytes, from: Ipv6Addr::from(from.sin6_addr.s6_addr), trace })
}

/// Returns a copy of the hop-by-hop options among the control messages.
///
/// # Safety
/// The kernel has filled the message, and its control buffer is still there.
unsafe fn options_of(message: &libc::msghdr) -> Option<Vec<u8>> {
    let head = size_of::<libc::cmsghdr>();
    // SAFETY: the macros stay inside of the control buffer. The kernel wrote the length of each control message; a
    // shorter one than its header is skipped, and the data of a longer one is copied as bytes.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(ptr::from_ref(message));
        while let Some(control) = next.as_ref() {
            let is_options =
                control.cmsg_level == libc::IPPROTO_IPV6 && control.cmsg_type == libc::IPV6_HOPOPTS;
            if let (true, Some(bytes)) = (is_options, control.cmsg_len.checked_sub(head)) {
                return Some(std::slice::from_raw_parts(libc::CMSG_DATA(next), bytes).to_vec());
            }
            next = libc::CMSG_NXTHDR(ptr::from_ref(message), next);
        }
    }
    None
}
