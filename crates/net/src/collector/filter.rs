//! Lets the kernel drop datagrams from addresses that are not allowed, by a classic BPF program at the socket.
//!
//! # Invariants
//! - The filter is a saving and not a check: admission looks at the address of each datagram that passes.
//! - What the filter drops is counted among the drops of the kernel.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd as _;

/// The most networks that a filter has. With more, the collector drops datagrams itself.
const MAX_NETWORKS: usize = 64;

/// Loads relative to the network header (`SKF_NET_OFF`).
const NETWORK_HEADER: u32 = 0xfff0_0000;

/// The places of the source address in the headers of IPv4 and IPv6.
const SOURCE_V4: u32 = 12;
const SOURCE_V6: u32 = 8;

/// Bytes of a datagram that the filter keeps: all.
const WHOLE: u32 = u32::MAX;

const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const SHIFT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Attaches a filter that lets datagrams from these networks through.
///
/// # Errors
/// The kernel refuses the filter, or there are too many networks.
pub(super) fn attach(socket: &UdpSocket, networks: &[(IpAddr, u8)]) -> io::Result<()> {
    if networks.len() > MAX_NETWORKS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut program: Vec<libc::sock_filter> = Vec::new();
    for network in networks {
        push_network(*network, &mut program);
    }
    program.push(statement(RETURN, 0));
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: `filter` points to `len` instructions of `program`, and both outlive the call, which copies them.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of_val(&filter) as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Appends the test of one network: it returns the datagram, or goes on behind itself.
fn push_network((network, bits): (IpAddr, u8), program: &mut Vec<libc::sock_filter>) {
    let (version, at, words) = match network {
        IpAddr::V4(address) => (4, SOURCE_V4, vec![u32::from(address)]),
        IpAddr::V6(address) => {
            let octets = address.octets();
            let words =
                octets.chunks_exact(4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
            (6, SOURCE_V6, words.collect())
        }
    };
    let mut tests: Vec<(u32, u32, u32)> = Vec::new();
    let mut left = u32::from(bits);
    for (offset, word) in (at..).step_by(4).zip(words) {
        let mask = u32::MAX.checked_shl(32u32.saturating_sub(left)).unwrap_or(0);
        tests.push((offset, mask, word & mask));
        left = left.saturating_sub(32);
    }
    // The version is three instructions, a word is three, and the return is one.
    let mut behind = (tests.len() * 3 + 1) as u8;
    program.push(statement(LOAD_BYTE, NETWORK_HEADER));
    program.push(statement(SHIFT, 4));
    program.push(jump(version, behind));
    for (offset, mask, expected) in tests {
        behind -= 3;
        program.push(statement(LOAD_WORD, NETWORK_HEADER + offset));
        program.push(statement(AND, mask));
        program.push(jump(expected, behind));
    }
    program.push(statement(RETURN, WHOLE));
}

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// Goes on if the value is `k`; else skips `behind` instructions.
fn jump(k: u32, behind: u8) -> libc::sock_filter {
    libc::sock_filter { code: IF_EQUAL, jt: 0, jf: behind, k }
}
