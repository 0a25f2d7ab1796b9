//! `nic`: errors of network cards by their cause (rtnetlink(7), `rtnl_link_stats64`), and the sizes of their rings
//! (ethtool netlink, Documentation/networking/ethtool-netlink.rst).
//!
//! `netdev` has packets, bytes, and the sums of errors. Interfaces that have never carried a packet have no facts. Rings
//! are read at the first poll and every minute, since drivers may ask their hardware for them. Virtual interfaces have no rings.

use std::io;

use rustix::net::netlink::GENERIC;
use skopos_model::schema::nic::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::instances::Instances;
use crate::netlink::{Netlink, attribute, attributes, put_attribute, u16_at, u32_at, u64_at};
use crate::rarely::Rarely;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The most interfaces with facts, as in `netdev`.
const MAX_INTERFACES: usize = 256;

/// `RTM_GETLINK`, the length of its structure `ifinfomsg`, and attributes of a link.
const GET_LINK: u16 = 18;
const IFINFOMSG_BYTES: usize = 16;
const NAME: u16 = 3;
const MTU: u16 = 4;
const QUEUE_LENGTH: u16 = 13;
const STATS64: u16 = 23;
const CARRIER_CHANGES: u16 = 35;

/// The facts of the structure of statistics, by their place in words of 64 bits. Older kernels have a shorter structure.
static STATS: [(usize, &Metric); 10] = [
    (10, &RECEIVE_LENGTH_ERRORS_TOTAL),
    (11, &RECEIVE_OVERRUNS_TOTAL),
    (12, &RECEIVE_CRC_ERRORS_TOTAL),
    (13, &RECEIVE_FRAME_ERRORS_TOTAL),
    (15, &RECEIVE_MISSED_TOTAL),
    (16, &TRANSMIT_ABORTED_TOTAL),
    (18, &TRANSMIT_FIFO_ERRORS_TOTAL),
    (20, &TRANSMIT_WINDOW_ERRORS_TOTAL),
    (23, &RECEIVE_UNHANDLED_TOTAL),
    (24, &RECEIVE_OTHER_HOST_TOTAL),
];

/// The places of received and sent packets in it.
const PACKETS: [usize; 2] = [0, 1];

/// Generic netlink: the controller, its request for a family by name, and the attributes of name and number.
const CONTROLLER: u16 = 16;
const GET_FAMILY: [u8; 4] = [3, 1, 0, 0];
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// ethtool: the request for rings, and its attributes.
const GET_RINGS: [u8; 4] = [15, 1, 0, 0];
const GENERIC_HEADER_BYTES: usize = 4;
const RINGS_HEADER: u16 = 1;
const HEADER_NAME: u16 = 2;
static RINGS: [(u16, &Metric); 4] =
    [(2, &RECEIVE_RING_LIMIT), (5, &TRANSMIT_RING_LIMIT), (6, &RECEIVE_RING), (9, &TRANSMIT_RING)];

pub(crate) struct Nic {
    netlink: Netlink,
    rings: Result<Rings, String>,
    rings_due: Rarely,
    interfaces: Instances<()>,
}

/// The access to ethtool.
struct Rings {
    netlink: Netlink,
    family: u16,
    request: Vec<u8>,
}

impl Rings {
    fn open() -> io::Result<Self> {
        let mut netlink = Netlink::open(Some(GENERIC))?;
        let mut request = GET_FAMILY.to_vec();
        put_attribute(&mut request, FAMILY_NAME, b"ethtool\0");
        let mut family = None;
        netlink.get(CONTROLLER, &request, |message| {
            let attributes = message.get(GENERIC_HEADER_BYTES..).unwrap_or_default();
            family = attribute(attributes, FAMILY_ID).and_then(|id| u16_at(id, 0));
        })?;
        let family = family.ok_or_else(|| io::Error::other("it has no number"))?;
        let mut request = GET_RINGS.to_vec();
        put_attribute(&mut request, RINGS_HEADER | 0x8000, &[]);
        Ok(Self { netlink, family, request })
    }
}

impl Nic {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        if root.sys != Root::default().sys {
            return Err(Skip::new("nic", "the kernel answers for this machine, not for files"));
        }
        let netlink = Netlink::open(None).map_err(|e| Skip::new("nic", format!("netlink: {e}")))?;
        Ok(Self {
            netlink,
            rings: Rings::open().map_err(|e| format!("the family ethtool of netlink: {e}")),
            rings_due: Rarely::every(RECEIVE_RING.read_every()),
            interfaces: Instances::new(&nic::FAMILY, MAX_INTERFACES),
        })
    }
}

impl Sensor for Nic {
    fn family(&self) -> &'static Family {
        &nic::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Self { netlink, rings, rings_due, interfaces } = self;
        interfaces.begin();
        netlink.dump(GET_LINK, &[0; IFINFOMSG_BYTES], |message| {
            let Some(link) = Link::of(message) else { return };
            if PACKETS.iter().all(|at| link.stat(*at).unwrap_or(0) == 0) {
                return;
            }
            let Some(interface) = interfaces.see(tick.sink, link.name, || ()) else { return };
            for (at, metric) in &STATS {
                if let Some(value) = link.stat(*at) {
                    interface.set(tick, metric, value);
                }
            }
            for (kind, metric) in [
                (CARRIER_CHANGES, &CARRIER_CHANGES_TOTAL),
                (QUEUE_LENGTH, &TRANSMIT_QUEUE_LIMIT),
                (MTU, &MTU_BYTES),
            ] {
                if let Some(value) = attribute(link.attributes, kind).and_then(|v| u32_at(v, 0)) {
                    interface.set(tick, metric, u64::from(value));
                }
            }
        })?;
        interfaces.end(tick.sink);
        let Ok(rings) = rings else { return Ok(()) };
        if rings_due.is_due(tick.monotonic) {
            rings_due.was_read(tick.monotonic);
            let Rings { netlink, family, request } = rings;
            netlink.dump(*family, request, |message| {
                let Some((name, attributes)) = ring_of(message) else { return };
                // An interface without packets has no instance.
                let Some(interface) = interfaces.known(name) else { return };
                for (kind, metric) in &RINGS {
                    if let Some(value) = attribute(attributes, *kind).and_then(|v| u32_at(v, 0)) {
                        interface.set(tick, metric, u64::from(value));
                    }
                }
            })?;
        }
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        let mut skips = self.interfaces.skips();
        if let Err(reason) = &self.rings {
            skips.push(Skip::new("nic/*_ring", reason.clone()));
        }
        skips
    }
}

/// A message about an interface.
struct Link<'a> {
    name: &'a [u8],
    stats: &'a [u8],
    attributes: &'a [u8],
}

impl<'a> Link<'a> {
    fn of(message: &'a [u8]) -> Option<Self> {
        let all = message.get(IFINFOMSG_BYTES..)?;
        let name = attribute(all, NAME)?.strip_suffix(b"\0")?;
        Some(Self { name, stats: attribute(all, STATS64)?, attributes: all })
    }

    fn stat(&self, at: usize) -> Option<u64> {
        u64_at(self.stats, at * 8)
    }
}

/// Returns the name and the attributes of an answer about rings.
fn ring_of(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let all = message.get(GENERIC_HEADER_BYTES..)?;
    let (_, header) = attributes(all).find(|(kind, _)| *kind == RINGS_HEADER)?;
    Some((attribute(header, HEADER_NAME)?.strip_suffix(b"\0")?, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_read_and_a_part_of_it_is_not() {
        let stats: Vec<u8> = (0_u64..24).flat_map(|n| (n * 1000).to_ne_bytes()).collect();
        let mut message = vec![0; IFINFOMSG_BYTES];
        put_attribute(&mut message, NAME, b"eth0\0");
        put_attribute(&mut message, STATS64, &stats);
        let link = Link::of(&message).expect("whole");
        assert_eq!((link.name, link.stat(15), link.stat(24)), (&b"eth0"[..], Some(15_000), None));
        for length in 0..message.len() {
            assert!(Link::of(&message[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn rings_are_read_and_a_part_of_them_is_not() {
        let mut header = Vec::new();
        put_attribute(&mut header, 1, &2_u32.to_ne_bytes());
        put_attribute(&mut header, HEADER_NAME, b"eth0\0");
        let mut message = GET_RINGS.to_vec();
        put_attribute(&mut message, RINGS_HEADER | 0x8000, &header);
        let short = message.len();
        put_attribute(&mut message, 6, &256_u32.to_ne_bytes());
        let (name, attributes) = ring_of(&message).expect("whole");
        assert_eq!(name, b"eth0");
        assert_eq!(attribute(attributes, 6).and_then(|v| u32_at(v, 0)), Some(256));
        for length in 0..short {
            assert!(ring_of(&message[..length]).is_none(), "{length}");
        }
    }
}
