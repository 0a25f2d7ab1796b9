//! Sends the events of a plane to a collector, as telemetry reports.

use std::net::{SocketAddr, UdpSocket};

use super::{Event, EventKind, Mode, Plane};
use crate::Error;
use crate::int::{GROUP_BYTES, Group, Hop, Inner, Instructions, Report, write_group, write_report};
use crate::netns::Namespace;
use crate::tag::{Key, TAG_REPORT_BYTES};

/// Bytes of a datagram with reports: it fits an Ethernet frame, with the headers of IPv6, UDP and a tunnel.
const DATAGRAM_BYTES: usize = 1400;

/// Sends reports.
#[derive(Debug)]
pub struct Reporter {
    socket: UdpSocket,
    node: u32,
    domain: u16,
    key: Option<Key>,
    sequence: u32,
    datagram: Vec<u8>,
    one: Vec<u8>,
    counts: ReporterCounts,
}

/// Numbers of a reporter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReporterCounts {
    /// Reports that were sent.
    pub reports: u64,
    /// Datagrams that were sent.
    pub datagrams: u64,
    /// Datagrams that the network stack did not take; their reports are lost.
    pub failed: u64,
}

impl Reporter {
    /// Opens a socket in `namespace` to the collector, for the reports of a node with its domain. With a key, each datagram
    /// has a tag.
    ///
    /// # Errors
    /// There is no route to the collector.
    pub fn open(
        namespace: &Namespace,
        (node, domain): (u32, u16),
        collector: SocketAddr,
        key: Option<Key>,
    ) -> Result<Self, Error> {
        let socket = namespace.run(|| {
            let any: SocketAddr =
                if collector.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
            let socket = UdpSocket::bind(any).map_err(Error::system("open a UDP socket"))?;
            let doing = format!("connect to the collector {collector}");
            socket.connect(collector).map_err(Error::system(doing))?;
            Ok(socket)
        })?;
        let datagram = Vec::with_capacity(DATAGRAM_BYTES);
        let counts = ReporterCounts::default();
        Ok(Self { socket, node, domain, key, sequence: 0, datagram, one: Vec::new(), counts })
    }

    /// Sends the waiting events, at most [`MAX_EVENTS`](super::MAX_EVENTS). Returns their number.
    ///
    /// # Errors
    /// The plane does not take the time of the day.
    pub fn poll(&mut self, plane: &mut Plane) -> Result<usize, Error> {
        plane.set_clock()?;
        let exports = plane.settings().mode == Mode::Export;
        let count = plane.events(|event| self.add(event, exports));
        self.flush();
        Ok(count)
    }

    fn add(&mut self, event: &Event<'_>, exports: bool) {
        self.note(event.hop, event.kind == EventKind::Hop && !exports, event.packet);
    }

    /// Adds the report of a packet that passed this node.
    pub(crate) fn note(&mut self, hop: Hop, intermediate: bool, packet: &[u8]) {
        let (dropped, congested, tracked) = (false, false, true);
        let (domain, inner) = (self.domain, Inner::Ip(packet));
        let report = Report { dropped, congested, tracked, intermediate, domain, hop, inner };
        self.one.clear();
        write_report(&report, known(&hop), &mut self.one);
        let tag_bytes = if self.key.is_some() { TAG_REPORT_BYTES } else { 0 };
        if self.datagram.len() + self.one.len() + tag_bytes > DATAGRAM_BYTES {
            self.flush();
        }
        if self.datagram.is_empty() {
            let group = Group { hardware: 0, sequence: self.sequence, node: self.node };
            write_group(&group, &mut self.datagram);
            self.sequence = self.sequence.wrapping_add(1);
        }
        self.datagram.extend(&self.one);
        self.counts.reports += 1;
    }

    /// Sends the reports that wait.
    pub(crate) fn flush(&mut self) {
        if self.datagram.len() <= GROUP_BYTES {
            return;
        }
        if let Some(key) = &self.key {
            key.append(&mut self.datagram);
        }
        match self.socket.send(&self.datagram) {
            Ok(_) => self.counts.datagrams += 1,
            Err(_) => self.counts.failed += 1,
        }
        self.datagram.clear();
    }

    /// Returns the numbers since the reporter was opened.
    pub fn counts(&self) -> ReporterCounts {
        self.counts
    }
}

/// Returns the bits of the values that the hop has.
fn known(hop: &Hop) -> Instructions {
    use crate::int::Field::{EgressTime, IngressTime, Latency, Ports, Queue, Utilisation};
    let all = [Ports, Latency, Queue, IngressTime, EgressTime, Utilisation];
    all.into_iter()
        .filter(|field| hop.knows(*field))
        .fold(Instructions::default(), |bits, field| {
            Instructions(bits.0 | Instructions::of(&[field]).0)
        })
}
