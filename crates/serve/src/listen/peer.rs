//! Finds the user that owns the peer of a local connection.
//!
//! TCP does not transmit the user, but the kernel knows the owner of every socket, and tells it for one connection
//! (`sock_diag`, see sock_diag(7)). Where it does not have that interface, `/proc` lists all sockets with their owners. A
//! listener without a configured address answers only its own user and root, as the UNIX socket does.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// Maximum number of bytes read from the list: a hundred thousand sockets. Peers beyond are rejected.
const MAX_LIST_BYTES: u64 = 16 << 20;

/// States of a client's socket from the kernel's `tcp_states.h`: established, and the two after the client ended its
/// requests and still reads.
const CONNECTED: [u8; 3] = [1, 4, 5];

/// Returns true if the socket at `peer`, connected to `here`, belongs to this process's user or to root.
pub(super) fn is_own(peer: SocketAddr, here: SocketAddr) -> bool {
    /// True once the kernel has answered: then no answer means that there is no such socket.
    static ANSWERS: AtomicBool = AtomicBool::new(false);
    let own = rustix::process::geteuid().as_raw();
    let is_ours = |uid: u32| uid == own || uid == 0;
    let [peer, here] = [peer, here].map(canonical);
    match ask(peer, here) {
        Some(socket) => {
            ANSWERS.store(true, Ordering::Relaxed);
            socket.owner().is_some_and(is_ours)
        }
        None if ANSWERS.load(Ordering::Relaxed) => false,
        None => listed_owner(peer, here).is_some_and(is_ours),
    }
}

/// Returns false if no process has the socket at `peer`, connected to `here`, any more; `None` if the kernel does not say. The
/// socket of a client that has only ended its requests still belongs to it.
pub(crate) fn is_open(peer: SocketAddr, here: SocketAddr) -> Option<bool> {
    /// True once the kernel has described a socket: then no answer means that there is none.
    static ANSWERS: AtomicBool = AtomicBool::new(false);
    match ask(canonical(peer), canonical(here)) {
        Some(socket) => {
            ANSWERS.store(true, Ordering::Relaxed);
            Some(socket.owner().is_some())
        }
        None => ANSWERS.load(Ordering::Relaxed).then_some(false),
    }
}

/// Returns the address without IPv6 around an IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A socket, as the kernel describes it.
struct Socket {
    state: u8,
    uid: u32,
    /// Zero if the socket does not belong to a process any more; it then counts as root's.
    inode: u32,
}

impl Socket {
    fn owner(&self) -> Option<u32> {
        (self.inode != 0 && CONNECTED.contains(&self.state)).then_some(self.uid)
    }
}

/// Numbers of the kernel's `netlink.h`, `sock_diag.h` and `inet_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const HEAD_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
/// Places in the answer `inet_diag_msg`, behind the head.
const STATE_AT: usize = 1;
const UID_AT: usize = 64;
const INODE_AT: usize = 68;

/// Asks the kernel for the socket at `peer` that is connected to `here`; `None` without an answer.
fn ask(peer: SocketAddr, here: SocketAddr) -> Option<Socket> {
    let (from, to) = (peer.ip(), here.ip());
    let mut message = Vec::with_capacity(HEAD_BYTES + REQUEST_BYTES);
    message.extend_from_slice(&((HEAD_BYTES + REQUEST_BYTES) as u32).to_ne_bytes());
    message.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    // Sequence and port, which the kernel repeats.
    message.extend_from_slice(&[0; 8]);
    let family = if from.is_ipv4() { AF_INET } else { AF_INET6 };
    message.extend_from_slice(&[family, IPPROTO_TCP, 0, 0]);
    // All states.
    message.extend_from_slice(&u32::MAX.to_ne_bytes());
    message.extend_from_slice(&peer.port().to_be_bytes());
    message.extend_from_slice(&here.port().to_be_bytes());
    for ip in [from, to] {
        match ip {
            IpAddr::V4(ip) => message.extend([ip.octets(), [0; 4], [0; 4], [0; 4]].concat()),
            IpAddr::V6(ip) => message.extend(ip.octets()),
        }
    }
    // Any interface, and any cookie.
    message.extend_from_slice(&0u32.to_ne_bytes());
    message.extend_from_slice(&[0xff; 8]);
    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let protocol = Some(netlink::SOCK_DIAG);
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, protocol).ok()?;
    rustix::net::send(&socket, &message, SendFlags::empty()).ok()?;
    let mut answer = [0; 1024];
    // The kernel has answered before `send` returns.
    let (_, length) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
    let answer = answer.get(..length)?;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let body = answer.get(HEAD_BYTES..)?;
    let number = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
    Some(Socket { state: *body.get(STATE_AT)?, uid: number(UID_AT)?, inode: number(INODE_AT)? })
}

/// Returns the owner of the socket at `peer` that is connected to `here`, from the lists in `/proc`.
fn listed_owner(peer: SocketAddr, here: SocketAddr) -> Option<u32> {
    // An IPv6 socket may be connected to an IPv4 address.
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"].iter().find_map(|list| {
        let list = File::open(list).ok()?;
        let lines = BufReader::new(list.take(MAX_LIST_BYTES)).lines().map_while(Result::ok);
        lines.skip(1).find_map(|line| owner(&line, peer, here))
    })
}

/// Returns the owner of the socket in this line of the list, if it connects `from` with `to`.
///
/// `  0: 0100007F:1D2E 0100007F:A3C4 01 00000000:00000000 00:00000000 00000000  1000        0 123456 …`
fn owner(line: &str, from: SocketAddr, to: SocketAddr) -> Option<u32> {
    let words: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
    let [_, local, remote, state, _, _, _, uid, _, inode] = words.as_slice() else { return None };
    let state = u8::from_str_radix(state, 16).ok()?;
    let socket = Socket { state, uid: uid.parse().ok()?, inode: inode.parse().ok()? };
    if address(local)? == from && address(remote)? == to { socket.owner() } else { None }
}

/// Reads `0100007F:1D2E`: the words of an address in the machine's byte order, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let mut bytes = Vec::with_capacity(16);
    for at in (0..ip.len()).step_by(8) {
        let word = u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => IpAddr::from(Ipv4Addr::from(four)),
        Err(_) => {
            let six = Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?);
            six.to_canonical()
        }
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_kernels_list_gives_the_owner() {
        let (a, b) = ("127.0.0.1:7470", "127.0.0.1:41924");
        let line = |state: &str, inode: &str| {
            format!(
                "  12: 0100007F:A3C4 0100007F:1D2E {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0000"
            )
        };
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert_eq!(owner(&line("01", "123"), at(b), at(a)), Some(1000));
        assert_eq!(owner(&line("01", "123"), at(a), at(b)), None, "the other direction");
        assert_eq!(owner(&line("05", "123"), at(b), at(a)), Some(1000), "it still reads");
        assert_eq!(owner(&line("06", "123"), at(b), at(a)), None, "it has ended");
        assert_eq!(owner(&line("01", "0"), at(b), at(a)), None, "it does not belong to a process");
        assert_eq!(owner("nonsense", at(b), at(a)), None);
        let mapped = "0: 0000000000000000FFFF00000100007F:A3C4 0000000000000000FFFF00000100007F:1D2E 01 0:0 0:0 0 7 0 9 1";
        assert_eq!(owner(mapped, at(b), at(a)), Some(7));
        let six = "0: 00000000000000000000000001000000:A3C4 00000000000000000000000001000000:1D2E 01 0:0 0:0 0 7 0 9 1";
        assert_eq!(owner(six, at("[::1]:41924"), at("[::1]:7470")), Some(7));
    }

    #[test]
    fn a_connection_of_this_process_is_its_own() {
        for local in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            // There may be no IPv6.
            let Ok(listener) = std::net::TcpListener::bind(local) else { continue };
            let port = listener.local_addr().expect("bound").port();
            let at = if local == "[::1]:0" { "::1" } else { "127.0.0.1" };
            let client = std::net::TcpStream::connect((at, port)).expect("connected");
            let (server, peer) = listener.accept().expect("accepted");
            let here = server.local_addr().expect("connected");
            let own = rustix::process::geteuid().as_raw();
            let [from, to] = [peer, here].map(canonical);
            assert_eq!(listed_owner(from, to), Some(own), "{local}");
            let asked = ask(from, to).map(|socket| socket.owner());
            assert!(asked.is_none_or(|owner| owner == Some(own)), "{local}");
            assert!(is_own(peer, here));
            // A client that has ended its requests still reads.
            client.shutdown(std::net::Shutdown::Write).expect("connected");
            assert!(is_own(peer, here), "{local}");
            let mut other = peer;
            other.set_port(1);
            assert!(!is_own(other, here), "there is no such socket");
        }
    }
}
