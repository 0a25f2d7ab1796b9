//! `qdisc`: the queues in front of network interfaces, by rtnetlink(7) (`RTM_GETQDISC`; `linux/gen_stats.h`).
//!
//! An instance is `INTERFACE.root`, `INTERFACE.ingress`, or `INTERFACE.MAJOR.MINOR` of the class whose queue it is, in
//! hexadecimal as `tc` shows them. Interfaces without a queue (`noqueue`) have no facts. Drops, requeues and overlimits
//! are counters of 32 bits in the kernel and begin anew at 2^32.

use std::io::{self, Write as _};

use rustix::net::netdevice::index_to_name_inlined;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use skopos_model::schema::Family;
use skopos_model::schema::qdisc::{self, *};

use crate::instances::Instances;
use crate::netlink::{Netlink, attribute, i32_at, u32_at, u64_at};
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The most queues. A card with 64 pairs of queues has 65.
const MAX_QDISCS: usize = 256;

/// `RTM_GETQDISC`, and the length of its structure `tcmsg`.
const GET_QDISC: u16 = 38;
const TCMSG_BYTES: usize = 20;

/// Parents that are not classes.
const ROOT: u32 = u32::MAX;
const INGRESS: u32 = 0xffff_fff1;

/// Attributes of a queue, and of its statistics.
const KIND: u16 = 1;
const STATS2: u16 = 7;
const BASIC: u16 = 1;
const QUEUE: u16 = 3;
const PACKETS_64: u16 = 8;

/// The numbers of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    index: u32,
    parent: u32,
    sent_bytes: u64,
    sent_packets: u64,
    queue: [u32; 5],
}

impl Numbers {
    /// Reads a message. `None` if it is incomplete, or the interface has no queue.
    fn of(message: &[u8]) -> Option<Self> {
        let attributes = message.get(TCMSG_BYTES..)?;
        if attribute(attributes, KIND)?.strip_suffix(b"\0")? == b"noqueue" {
            return None;
        }
        let stats = attribute(attributes, STATS2)?;
        let (basic, queue) = (attribute(stats, BASIC)?, attribute(stats, QUEUE)?);
        let packets = attribute(stats, PACKETS_64).and_then(|wide| u64_at(wide, 0));
        Some(Self {
            index: u32::try_from(i32_at(message, 4)?).ok()?,
            parent: u32_at(message, 12)?,
            sent_bytes: u64_at(basic, 0)?,
            sent_packets: packets.or_else(|| u32_at(basic, 8).map(u64::from))?,
            queue: [
                u32_at(queue, 0)?,
                u32_at(queue, 4)?,
                u32_at(queue, 8)?,
                u32_at(queue, 12)?,
                u32_at(queue, 16)?,
            ],
        })
    }
}

pub(crate) struct Qdisc {
    netlink: Netlink,
    /// Any socket: the kernel answers by it which interface has an index.
    names: std::os::fd::OwnedFd,
    qdiscs: Instances<()>,
    label: Vec<u8>,
}

impl Qdisc {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let skip = |e: io::Error| Skip::new("qdisc", format!("netlink: {e}"));
        if root.sys != Root::default().sys {
            return Err(Skip::new("qdisc", "the kernel answers for this machine, not for files"));
        }
        let flags = SocketFlags::CLOEXEC;
        let names = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None);
        let mut netlink = Netlink::open(None).map_err(skip)?;
        netlink.dump(GET_QDISC, &[0; TCMSG_BYTES], |_| {}).map_err(skip)?;
        Ok(Self {
            netlink,
            names: names.map_err(|e| skip(e.into()))?,
            qdiscs: Instances::new(&qdisc::FAMILY, MAX_QDISCS),
            label: Vec::new(),
        })
    }
}

impl Sensor for Qdisc {
    fn family(&self) -> &'static Family {
        &qdisc::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Self { netlink, names, qdiscs, label } = self;
        qdiscs.begin();
        netlink.dump(GET_QDISC, &[0; TCMSG_BYTES], |message| {
            let Some(numbers) = Numbers::of(message) else { return };
            // An interface that vanished since the kernel listed it has no name.
            let Ok(name) = index_to_name_inlined(&*names, numbers.index) else { return };
            label.clear();
            let _ = match numbers.parent {
                ROOT => write!(label, "{}.root", name.as_str()),
                INGRESS => write!(label, "{}.ingress", name.as_str()),
                parent => {
                    write!(label, "{}.{:x}.{:x}", name.as_str(), parent >> 16, parent & 0xffff)
                }
            };
            let Some(qdisc) = qdiscs.see(tick.sink, label, || ()) else { return };
            let [packets, backlog, drops, requeues, overlimits] = numbers.queue.map(u64::from);
            qdisc.set(tick, &SENT_BYTES_TOTAL, numbers.sent_bytes);
            qdisc.set(tick, &SENT_PACKETS_TOTAL, numbers.sent_packets);
            qdisc.set(tick, &BACKLOG_BYTES, backlog);
            qdisc.set(tick, &BACKLOG_PACKETS, packets);
            qdisc.set(tick, &DROPS_TOTAL, drops);
            qdisc.set(tick, &REQUEUES_TOTAL, requeues);
            qdisc.set(tick, &OVERLIMITS_TOTAL, overlimits);
        })?;
        qdiscs.end(tick.sink);
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        self.qdiscs.skips()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_attribute;

    /// A queue of eth0 (index 2) that holds 3 packets of 4,500 bytes.
    fn recorded(kind: &[u8], parent: u32) -> Vec<u8> {
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
        let mut stats = Vec::new();
        let mut basic = 123_456_789_012_u64.to_ne_bytes().to_vec();
        basic.extend(words(&[77, 0]));
        put_attribute(&mut stats, BASIC, &basic);
        put_attribute(&mut stats, QUEUE, &words(&[3, 4500, 5, 6, 7]));
        let mut message = words(&[0, 2, 0x8001_0000, parent, 2]);
        put_attribute(&mut message, KIND, kind);
        put_attribute(&mut message, STATS2, &stats);
        message
    }

    #[test]
    fn a_queue_is_read_and_a_part_of_it_is_not() {
        let message = recorded(b"tbf\0", ROOT);
        let expected = Numbers {
            index: 2,
            parent: ROOT,
            sent_bytes: 123_456_789_012,
            sent_packets: 77,
            queue: [3, 4500, 5, 6, 7],
        };
        assert_eq!(Numbers::of(&message), Some(expected));
        for length in 0..message.len() {
            assert_eq!(Numbers::of(&message[..length]), None, "{length}");
        }
        assert_eq!(Numbers::of(&recorded(b"noqueue\0", ROOT)), None);
        assert_eq!(Numbers::of(&recorded(b"", 0)), None);
    }
}
