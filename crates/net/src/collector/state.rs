//! The state of paths, ports and nodes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

use super::counts::CollectorCounts;
use super::sequence::{Place, Sequence};
use super::table::Table;
use crate::int::{Embedded, Flow, Group, Hop, Report};

/// The most paths. A site with 64 hosts that all speak with each other has 4032.
pub const MAX_PATHS: usize = 4096;

/// The most egress ports of nodes: 256 switches with 32 ports.
pub const MAX_PORTS: usize = 8192;

/// The most nodes that report.
pub const MAX_NODES: usize = 4096;

/// The most hops that a path keeps. A stack has room for at most 252 words, so more hops have few values.
const MAX_HOPS: usize = 64;

/// Nanoseconds by which the reports of a datagram may be older than those of the last minute. Longer than any queue; a node
/// whose clock was set back further is heard again after this time.
const MAX_BACK_NS: u64 = 60_000_000_000;

/// Bits of the number of a datagram, and of a packet.
const DATAGRAM_BITS: u32 = 22;
const PACKET_BITS: u32 = 32;

/// A path: the addresses of its ends.
pub(super) type PathKey = (IpAddr, IpAddr);
/// A port: node and number.
pub(super) type PortKey = (u32, u16);

/// All state.
#[derive(Debug)]
pub(super) struct State {
    pub(super) paths: Table<PathKey, PathState>,
    pub(super) ports: Table<PortKey, PortState>,
    pub(super) nodes: Table<u32, NodeState>,
}

/// One path.
#[derive(Debug)]
pub(super) struct PathState {
    pub(super) packets: u64,
    sequence: Sequence,
    /// The newest time at which a packet began, in nanoseconds of the source's clock.
    newest_ns: u64,
    /// A hash of the hops; `None` until a packet has all of them.
    route: Option<u64>,
    pub(super) changes: u64,
    pub(super) mtu_exceeded: u64,
    pub(super) hops_exceeded: u64,
    pub(super) latency_ns: Option<u64>,
    pub(super) latency_ns_max: Option<u64>,
    pub(super) hops_latency_ns: Option<u64>,
    pub(super) queue_bytes_max: Option<u32>,
    pub(super) hops: Vec<Hop>,
    pub(super) is_new: bool,
}

impl Default for PathState {
    fn default() -> Self {
        Self {
            packets: 0,
            sequence: Sequence::new(PACKET_BITS),
            newest_ns: 0,
            route: None,
            changes: 0,
            mtu_exceeded: 0,
            hops_exceeded: 0,
            latency_ns: None,
            latency_ns_max: None,
            hops_latency_ns: None,
            queue_bytes_max: None,
            hops: Vec::new(),
            is_new: false,
        }
    }
}

/// One port.
#[derive(Debug, Default)]
pub(super) struct PortState {
    pub(super) packets: u64,
    pub(super) queue_bytes: Option<u32>,
    pub(super) queue_bytes_max: Option<u32>,
    pub(super) latency_ns: Option<u32>,
    pub(super) latency_ns_max: Option<u32>,
    pub(super) used_ppm: Option<u32>,
    pub(super) is_new: bool,
}

/// One node that reports.
#[derive(Debug)]
pub(super) struct NodeState {
    sequence: Sequence,
    /// The newest time of a report, in nanoseconds of the node's clock.
    newest_ns: u64,
    /// The newest time of a report in the last minute, and the time at which it came, in nanoseconds of this clock.
    recent: (u64, u64),
    pub(super) reports: u64,
    pub(super) drops: u64,
    pub(super) congested: u64,
}

impl Default for NodeState {
    fn default() -> Self {
        let sequence = Sequence::new(DATAGRAM_BITS);
        Self { sequence, newest_ns: 0, recent: (0, 0), reports: 0, drops: 0, congested: 0 }
    }
}

impl NodeState {
    pub(super) fn lost(&self) -> u64 {
        self.sequence.lost()
    }

    /// Notes the number of a datagram, and returns true if the datagram was seen before.
    fn is_replay(&mut self, number: u32, newest: Option<u64>, now: u64) -> bool {
        let (recent_ns, recent_at) = self.recent;
        let is_recent = now.saturating_sub(recent_at) <= MAX_BACK_NS;
        let is_old = newest.is_some_and(|time| time.saturating_add(MAX_BACK_NS) < recent_ns);
        // Numbers come again after four million datagrams, so a datagram that was recorded before that may have the next one.
        if is_recent && is_old {
            return true;
        }
        let place = note_newer(&mut self.sequence, number, newest, &mut self.newest_ns);
        if place == Place::Old {
            return true;
        }
        if let Some(time) = newest.filter(|time| *time >= recent_ns || !is_recent) {
            self.recent = (time, now);
        }
        false
    }
}

/// Notes a number with the time at which its sender used it. A number that was seen, with a time that is newer than
/// all others, is that of a sender that began anew.
fn note_newer(sequence: &mut Sequence, number: u32, time: Option<u64>, newest: &mut u64) -> Place {
    let is_newer = time.is_some_and(|time| time > *newest);
    *newest = (*newest).max(time.unwrap_or(0));
    let place = sequence.place(number);
    match place {
        Place::Old if is_newer => {
            sequence.begin(number);
            Place::Restart
        }
        // Numbers far away, and no time that says that they are new.
        Place::Restart if !is_newer => Place::Old,
        _ => sequence.note(number),
    }
}

impl PathState {
    pub(super) fn lost(&self) -> u64 {
        self.sequence.lost()
    }

    fn note(&mut self, int: &Embedded<'_>, sink: &Hop) {
        self.packets += 1;
        self.mtu_exceeded += u64::from(int.header.mtu_exceeded);
        self.hops_exceeded += u64::from(int.header.hops_exceeded);
        let begin = int.hops().next().as_ref().and_then(begin_ns);
        // Clocks that disagree by more than the path takes give no time at all.
        let latency_ns = begin.and_then(|begin| sink.ingress_ns?.checked_sub(begin));
        if let Some(number) = int.sequence
            && note_newer(&mut self.sequence, number, begin, &mut self.newest_ns) == Place::Late
        {
            // An earlier packet that came later says nothing about the present. It waited long, so the maxima have it.
            let queue = int.hops().take(MAX_HOPS).filter_map(|hop| hop.queue_bytes).max();
            self.note_maxima(queue, latency_ns);
            return;
        }
        self.is_new = true;
        self.hops.clear();
        self.hops.extend(int.hops().take(MAX_HOPS));
        // A hop that could not add its data does not change the route.
        if !int.header.mtu_exceeded && !int.header.hops_exceeded {
            self.note_route();
        }
        let queue = self.hops.iter().filter_map(|hop| hop.queue_bytes).max();
        self.note_maxima(queue, latency_ns);
        let latencies: Option<u64> =
            self.hops.iter().map(|hop| hop.latency_ns.map(u64::from)).sum();
        self.hops_latency_ns = latencies;
        self.latency_ns = latency_ns;
    }

    fn note_maxima(&mut self, queue_bytes: Option<u32>, latency_ns: Option<u64>) {
        self.queue_bytes_max = self.queue_bytes_max.max(queue_bytes);
        self.latency_ns_max = self.latency_ns_max.max(latency_ns);
    }

    fn note_route(&mut self) {
        let mut hasher = DefaultHasher::new();
        for hop in &self.hops {
            (hop.node, hop.ingress_port, hop.egress_port).hash(&mut hasher);
        }
        let route = hasher.finish();
        if self.route.is_some_and(|before| before != route) {
            self.changes += 1;
        }
        self.route = Some(route);
    }
}

/// The time at which a packet came to a hop, or was sent by it.
fn begin_ns(hop: &Hop) -> Option<u64> {
    let sent = || hop.egress_ns?.checked_sub(u64::from(hop.latency_ns.unwrap_or(0)));
    hop.ingress_ns.or_else(sent)
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            paths: Table::new(MAX_PATHS),
            ports: Table::new(MAX_PORTS),
            nodes: Table::new(MAX_NODES),
        }
    }

    /// Notes a datagram with the newest time of its reports; returns false if it was seen before.
    pub(super) fn note_group(
        &mut self,
        group: &Group,
        newest: Option<u64>,
        now: u64,
        counts: &mut CollectorCounts,
    ) -> bool {
        let Some(node) = self.nodes.entry(group.node, now, counts) else { return true };
        !node.is_replay(group.sequence, newest, now)
    }

    /// Notes a report.
    pub(super) fn note_report(
        &mut self,
        group: &Group,
        report: &Report<'_>,
        now: u64,
        counts: &mut CollectorCounts,
    ) {
        if let Some(node) = self.nodes.entry(group.node, now, counts) {
            node.reports += 1;
            node.drops += u64::from(report.dropped);
            node.congested += u64::from(report.congested);
        }
        let own = Hop { node: Some(group.node), ..report.hop };
        self.note_hop(&own, now, counts);
    }

    /// Notes the packet of a report.
    pub(super) fn note_packet(
        &mut self,
        flow: &Flow,
        int: &Embedded<'_>,
        sink: &Hop,
        now: u64,
        counts: &mut CollectorCounts,
    ) {
        if let Some(path) = self.paths.entry((flow.source, flow.destination), now, counts) {
            path.note(int, sink);
        }
        for hop in int.hops() {
            self.note_hop(&hop, now, counts);
        }
    }

    fn note_hop(&mut self, hop: &Hop, now: u64, counts: &mut CollectorCounts) {
        let (Some(node), Some(port)) = (hop.node, hop.egress_port) else { return };
        let Some(state) = self.ports.entry((node, port), now, counts) else { return };
        state.packets += 1;
        state.is_new = true;
        state.queue_bytes = hop.queue_bytes;
        state.queue_bytes_max = state.queue_bytes_max.max(hop.queue_bytes);
        state.latency_ns = hop.latency_ns;
        state.latency_ns_max = state.latency_ns_max.max(hop.latency_ns);
        state.used_ppm = hop.utilisation_ppm;
    }
}
