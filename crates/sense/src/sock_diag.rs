//! The TCP sockets of this network namespace, by sock_diag(7) (`linux/inet_diag.h`, `linux/tcp.h`). The families
//! `listener` and `tcp_peer` are made of them.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::net::netlink::SOCK_DIAG;

use crate::netlink::{Netlink, attribute, u32_at, u64_at};

/// `TCPDIAG_GETSOCK`, which lists the sockets of both families. The kernel walks its whole table of connections for each
/// request, 0.16 ms on a machine of 24 GB without a connection, and `SOCK_DIAG_BY_FAMILY` takes a request for each family.
const ALL_FAMILIES: u16 = 18;

/// Families of addresses.
const IPV4: u8 = 2;
const IPV6: u8 = 10;

/// Length of `inet_diag_req`, and of `inet_diag_msg`.
const REQUEST_BYTES: usize = 60;
const MESSAGE_BYTES: usize = 72;

/// The attribute `INET_DIAG_INFO`, and the bit that asks for it.
const INFO: u16 = 2;
const WITH_INFO: u8 = 1 << (INFO - 1);

/// Sets of states, as bits of their numbers (`net/tcp_states.h`).
const LISTENING: u32 = 1 << 10;
/// All but those that wait for late segments (6), are closed (7), listen (10) or are requests only (12).
const CONNECTED: u32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

/// A socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Socket {
    pub(crate) local: (IpAddr, u16),
    pub(crate) remote: IpAddr,
    /// Bytes received and not read; for a listening socket connections that wait to be accepted.
    pub(crate) receive_queue: u32,
    /// Bytes sent and not acknowledged, or not sent; for a listening socket the limit of those.
    pub(crate) send_queue: u32,
    /// Absent for a listening socket.
    pub(crate) info: Option<Info>,
}

/// The part of `tcp_info` that is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Info {
    pub(crate) lost: u32,
    pub(crate) rtt_micros: u32,
    pub(crate) retransmits: u32,
    /// Bytes a second; `None` without pacing.
    pub(crate) pacing: Option<u64>,
    /// Bytes not sent yet; `None` before Linux 4.6.
    pub(crate) not_sent: Option<u32>,
}

impl Socket {
    fn of(message: &[u8]) -> Option<Self> {
        let attributes = message.get(MESSAGE_BYTES..)?;
        let family = message[0];
        let port = u16::from_be_bytes([message[4], message[5]]);
        Some(Self {
            local: (address(family, message.get(8..24)?)?, port),
            remote: address(family, message.get(24..40)?)?,
            receive_queue: u32_at(message, 56)?,
            send_queue: u32_at(message, 60)?,
            info: attribute(attributes, INFO).and_then(Info::of),
        })
    }
}

impl Info {
    fn of(info: &[u8]) -> Option<Self> {
        Some(Self {
            lost: u32_at(info, 32)?,
            rtt_micros: u32_at(info, 68)?,
            retransmits: u32_at(info, 100)?,
            pacing: u64_at(info, 104).filter(|rate| *rate != u64::MAX),
            not_sent: u32_at(info, 144),
        })
    }
}

/// Reads an address. One of IPv4 in IPv6 is one of IPv4.
fn address(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        IPV4 => Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()),
        IPV6 => Some(IpAddr::V6(Ipv6Addr::from(*bytes.first_chunk::<16>()?)).to_canonical()),
        _ => None,
    }
}

/// The sockets of a set of states.
pub(crate) struct Sockets {
    netlink: Netlink,
    states: u32,
    extensions: u8,
}

impl Sockets {
    /// Lists listening sockets.
    pub(crate) fn listening() -> io::Result<Self> {
        Self::open(LISTENING, 0)
    }

    /// Lists connections, with their [`Info`].
    pub(crate) fn connected() -> io::Result<Self> {
        Self::open(CONNECTED, WITH_INFO)
    }

    fn open(states: u32, extensions: u8) -> io::Result<Self> {
        let netlink = Netlink::open(Some(SOCK_DIAG))?;
        let mut sockets = Self { netlink, states, extensions };
        sockets.each(|_| {})?;
        Ok(sockets)
    }

    /// Passes each socket to `take`.
    pub(crate) fn each(&mut self, mut take: impl FnMut(&Socket)) -> io::Result<()> {
        let mut request = [0; REQUEST_BYTES];
        request[3] = self.extensions;
        request[52..56].copy_from_slice(&self.states.to_ne_bytes());
        self.netlink.dump(ALL_FAMILIES, &request, |message| {
            if let Some(socket) = Socket::of(message) {
                take(&socket);
            }
        })
    }
}

/// Replaces the content of `label` by an address, and a port after a dot if there is one. A colon would be escaped in a
/// topic, so it becomes a hyphen.
pub(crate) fn write_label(label: &mut Vec<u8>, address: IpAddr, port: Option<u16>) {
    label.clear();
    // Writing to a vector does not fail.
    let _ = write!(label, "{address}");
    label.iter_mut().filter(|byte| **byte == b':').for_each(|byte| *byte = b'-');
    if let Some(port) = port {
        let _ = write!(label, ".{port}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_attribute;

    fn recorded(family: u8, info: &[u8]) -> Vec<u8> {
        let mut message = vec![0; MESSAGE_BYTES];
        message[0] = family;
        message[4..6].copy_from_slice(&443_u16.to_be_bytes());
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2];
        let (local, remote) = (&mut [0; 16], &mut [0; 16]);
        if family == IPV4 {
            local[..4].copy_from_slice(&[192, 0, 2, 1]);
            remote[..4].copy_from_slice(&[192, 0, 2, 9]);
        } else {
            local[..15].copy_from_slice(&mapped);
            remote[..15].copy_from_slice(&mapped);
            (local[15], remote[15]) = (1, 9);
        }
        message[8..24].copy_from_slice(&local[..]);
        message[24..40].copy_from_slice(&remote[..]);
        message[56..60].copy_from_slice(&11_u32.to_ne_bytes());
        message[60..64].copy_from_slice(&22_u32.to_ne_bytes());
        put_attribute(&mut message, INFO, info);
        message
    }

    #[test]
    fn a_socket_is_read_and_a_part_of_it_is_not() {
        let mut info = vec![0; 232];
        info[32..36].copy_from_slice(&1_u32.to_ne_bytes());
        info[68..72].copy_from_slice(&25_000_u32.to_ne_bytes());
        info[100..104].copy_from_slice(&7_u32.to_ne_bytes());
        info[104..112].copy_from_slice(&u64::MAX.to_ne_bytes());
        info[144..148].copy_from_slice(&9_u32.to_ne_bytes());
        let numbers =
            Info { lost: 1, rtt_micros: 25_000, retransmits: 7, pacing: None, not_sent: Some(9) };
        let expected = Socket {
            local: (IpAddr::from([192, 0, 2, 1]), 443),
            remote: IpAddr::from([192, 0, 2, 9]),
            receive_queue: 11,
            send_queue: 22,
            info: Some(numbers),
        };
        for family in [IPV4, IPV6] {
            let message = recorded(family, &info);
            assert_eq!(Socket::of(&message), Some(expected));
            for length in 0..MESSAGE_BYTES {
                assert_eq!(Socket::of(&message[..length]), None, "{length}");
            }
            // A part of an attribute is not read.
            let without = Socket { info: None, ..expected };
            assert_eq!(Socket::of(&message[..message.len() - 4]), Some(without));
        }
        // An old kernel has a shorter structure.
        let old = Socket::of(&recorded(IPV4, &info[..104])).and_then(|socket| socket.info);
        assert_eq!(old.map(|info| (info.retransmits, info.not_sent)), Some((7, None)));
        assert_eq!(Socket::of(&recorded(1, &info)), None);
    }

    #[test]
    fn labels_are_segments_of_topics() {
        let mut label = Vec::new();
        write_label(&mut label, IpAddr::from([127, 0, 0, 1]), Some(80));
        assert_eq!(label, b"127.0.0.1.80");
        write_label(&mut label, IpAddr::V6(Ipv6Addr::LOCALHOST), Some(80));
        assert_eq!(label, b"--1.80");
        write_label(&mut label, IpAddr::V6(Ipv6Addr::LOCALHOST), None);
        assert_eq!(label, b"--1");
    }
}
