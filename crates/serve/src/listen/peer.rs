//! Finds the user that owns the peer of a local connection.
//!
//! TCP does not transmit the user, but the kernel lists every socket with its owner. A listener without a configured
//! address answers only its own user and root, as the UNIX socket does.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum number of bytes read from the list: a hundred thousand sockets. Peers beyond are rejected.
const MAX_LIST_BYTES: u64 = 16 << 20;

/// The code of a connected socket in the list.
const ESTABLISHED: &str = "01";

/// Returns true if the socket at `peer`, connected to `here`, belongs to this process's user or to root.
pub(super) fn is_own(peer: SocketAddr, here: SocketAddr) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let is_ours = |uid: u32| uid == own || uid == 0;
    // An IPv6 socket may be connected to an IPv4 address.
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"].iter().any(|list| {
        let Ok(list) = File::open(list) else { return false };
        let lines = BufReader::new(list.take(MAX_LIST_BYTES)).lines().map_while(Result::ok);
        lines.skip(1).find_map(|line| owner(&line, peer, here)).is_some_and(is_ours)
    })
}

/// Returns the owner of the socket in this line of the list, if it connects `from` with `to`.
///
/// `  0: 0100007F:1D2E 0100007F:A3C4 01 00000000:00000000 00:00000000 00000000  1000        0 123456 …`
fn owner(line: &str, from: SocketAddr, to: SocketAddr) -> Option<u32> {
    let words: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
    let [_, local, remote, state, _, _, _, uid, _, inode] = words.as_slice() else { return None };
    // A socket without an inode does not belong to a process any more, and is listed as root's.
    let is_match =
        *state == ESTABLISHED && *inode != "0" && address(local)? == from && address(remote)? == to;
    if is_match { uid.parse().ok() } else { None }
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
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let here = listener.local_addr().expect("bound");
        let client = std::net::TcpStream::connect(here).expect("connected");
        let (_server, peer) = listener.accept().expect("accepted");
        assert!(is_own(peer, here));
        drop(client);
        assert!(
            !is_own("127.0.0.1:1".parse().expect("an address"), here),
            "there is no such socket"
        );
    }
}
