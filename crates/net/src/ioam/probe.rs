//! Probes with traces: a prober sends small datagrams to peers, and a sink there reports what their traces say to a
//! collector, as a sink of INT does. So paths appear as facts without a BPF program.
//!
//! # Layout
//! `sequence 32 | time of sending 64`, in nanoseconds since 1970, then the tag of [`Key`].

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use super::socket::{receive, receive_options, set_trace};
use super::trace::{IoamNode, Trace, TraceRequest};
use crate::Error;
use crate::bytes::Reader;
use crate::int::{Embedded, Field, Header, Hop, INSTRUCTION_SEQUENCE, Instructions, Kind, Next};
use crate::netns::Namespace;
use crate::plane::{INT_PORT, Reporter};
use crate::tag::{Key, TAG_REPORT_BYTES};

/// Bytes of a probe before its tag.
const PROBE_BYTES: usize = 12;

/// Longer than a probe: what is longer is cut off, and so has a wrong tag.
const DATAGRAM_BYTES: usize = PROBE_BYTES + TAG_REPORT_BYTES + 1;

/// A probe whose time is further from the clock of the sink is stale. Clocks of a site agree much better, and a probe that
/// was recorded is useless soon.
const MAX_AGE_NS: u64 = 120 * 1_000_000_000;

/// The most datagrams of one call, so that a flood does not keep the caller for ever.
const MAX_DATAGRAMS: usize = 256;

/// The most nodes whose data is kept: those of the paths of a host, many times over.
const MAX_NODES: usize = 1024;

/// Sends probes.
#[derive(Debug)]
pub struct Prober {
    socket: UdpSocket,
    /// The number of the next probe of each peer.
    peers: Vec<(SocketAddrV6, u32)>,
    key: Key,
    sent: u64,
    failed: u64,
}

impl Prober {
    /// Opens a socket whose packets have traces.
    ///
    /// # Errors
    /// The trace is too long, or this process has no CAP_NET_RAW.
    pub fn open(peers: &[SocketAddrV6], request: TraceRequest, key: Key) -> Result<Self, Error> {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
            .map_err(Error::system("open a UDP socket"))?;
        socket.set_nonblocking(true).map_err(Error::system("set up a socket"))?;
        set_trace(&socket, request)?;
        let peers = peers.iter().map(|peer| (*peer, 0)).collect();
        Ok(Self { socket, peers, key, sent: 0, failed: 0 })
    }

    /// Sends a probe to each peer. `now` is the time since 1970 in nanoseconds.
    pub fn send(&mut self, now: u64) {
        for (peer, sequence) in &mut self.peers {
            let mut probe = Vec::with_capacity(DATAGRAM_BYTES);
            probe.extend(sequence.to_be_bytes());
            probe.extend(now.to_be_bytes());
            self.key.append(&mut probe);
            *sequence = sequence.wrapping_add(1);
            match self.socket.send_to(&probe, *peer) {
                Ok(_) => self.sent += 1,
                Err(_) => self.failed += 1,
            }
        }
    }

    /// Returns the probes that were sent, and those that the network stack did not take.
    pub fn counts(&self) -> (u64, u64) {
        (self.sent, self.failed)
    }
}

/// Takes probes, and reports them to a collector.
#[derive(Debug)]
pub struct ProbeSink {
    socket: UdpSocket,
    local: SocketAddr,
    domain: u16,
    reporter: Reporter,
    key: Key,
    nodes: BTreeMap<u32, u32>,
    counts: ProbeCounts,
}

/// Numbers of probes since the sink was opened. Each probe counts in one of the first five.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    /// Probes that were reported.
    pub taken: u64,
    /// Datagrams without the tag of this site.
    pub forged: u64,
    /// Probes whose time is not that of this machine.
    pub stale: u64,
    /// Probes with a trace that contradicts itself.
    pub malformed: u64,
    /// Probes without a trace: a router on the way took the option away, or did not let it pass.
    pub without_trace: u64,
    /// Probes in whose trace a node found no room.
    pub cut_short: u64,
    /// Nodes whose data is not kept because there are too many.
    pub nodes_left_out: u64,
    /// Reports that the network stack did not take.
    pub reports_failed: u64,
}

impl ProbeSink {
    /// Opens a sink at an address, which reports as the node `id` of a domain to the collector.
    ///
    /// # Errors
    /// The address is in use, or there is no route to the collector.
    pub fn open(
        listen: SocketAddrV6,
        (id, domain): (u32, u16),
        collector: SocketAddr,
        key: Key,
    ) -> Result<Self, Error> {
        let socket =
            UdpSocket::bind(listen).map_err(Error::system(format!("listen at {listen}")))?;
        socket.set_nonblocking(true).map_err(Error::system("set up a socket"))?;
        receive_options(&socket)?;
        let local = socket.local_addr().map_err(Error::system("ask for an address"))?;
        let here = Namespace::current()?;
        let reporter = Reporter::open(&here, (id, domain), collector, Some(key.clone()))?;
        let (nodes, counts) = (BTreeMap::new(), ProbeCounts::default());
        Ok(Self { socket, local, domain, reporter, key, nodes, counts })
    }

    /// Takes the probes that wait. `now` is the time since 1970 in nanoseconds. Returns the number of datagrams.
    ///
    /// # Errors
    /// The socket failed.
    pub fn receive(&mut self, now: u64) -> Result<usize, Error> {
        let mut buffer = [0; DATAGRAM_BYTES];
        let mut count = 0;
        while count < MAX_DATAGRAMS {
            let received = match receive(&self.socket, &mut buffer) {
                Err(Error::System { source, .. }) if source.kind() == ErrorKind::WouldBlock => {
                    break;
                }
                Err(Error::System { source, .. }) if source.kind() == ErrorKind::Interrupted => {
                    continue;
                }
                received => received?,
            };
            count += 1;
            self.take(received.from, &buffer[..received.bytes], received.trace, now);
        }
        self.reporter.flush();
        self.counts.reports_failed = self.reporter.counts().failed;
        Ok(count)
    }

    fn take(
        &mut self,
        from: Ipv6Addr,
        datagram: &[u8],
        trace: Result<Option<Trace>, String>,
        now: u64,
    ) {
        let Some((sequence, sent)) = self.key.verified(datagram).and_then(parse) else {
            self.counts.forged += 1;
            return;
        };
        if now.abs_diff(sent) > MAX_AGE_NS {
            self.counts.stale += 1;
            return;
        }
        let trace = match trace {
            Ok(Some(trace)) if !trace.nodes.is_empty() => trace,
            Ok(_) => {
                self.counts.without_trace += 1;
                return;
            }
            Err(_) => {
                self.counts.malformed += 1;
                return;
            }
        };
        self.counts.taken += 1;
        self.counts.cut_short += u64::from(trace.overflow);
        self.keep_data(&trace);
        let SocketAddr::V6(local) = self.local else { return };
        let packet = packet((from, *local.ip()), self.domain, &trace, sequence);
        let hop = Hop { ingress_ns: Some(now), ..Hop::default() };
        self.reporter.note(hop, false, &packet);
    }

    fn keep_data(&mut self, trace: &Trace) {
        for node in &trace.nodes {
            let (Some(id), Some(data)) = (node.node, node.data) else { continue };
            if self.nodes.len() < MAX_NODES || self.nodes.contains_key(&id) {
                self.nodes.insert(id, data);
            } else {
                self.counts.nodes_left_out += 1;
            }
        }
    }

    /// Returns the latest data of the namespace at each node, by its id.
    pub fn nodes(&self) -> &BTreeMap<u32, u32> {
        &self.nodes
    }

    /// Returns the numbers since the sink was opened.
    pub fn counts(&self) -> ProbeCounts {
        self.counts
    }
}

/// The descriptor is readable when probes wait.
impl AsFd for ProbeSink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns sequence and time of a probe.
fn parse(probe: &[u8]) -> Option<(u32, u64)> {
    let mut reader = Reader::new("a probe", probe);
    let parsed = (reader.u32().ok()?, reader.u64().ok()?);
    reader.rest().is_empty().then_some(parsed)
}

/// Returns the packet that a chain of INT nodes would have made of a probe: collectors read it as any other.
fn packet((from, to): (Ipv6Addr, Ipv6Addr), domain: u16, trace: &Trace, sequence: u32) -> Vec<u8> {
    const UDP: u8 = 17;
    let instructions =
        Instructions::of(&[Field::Node, Field::Ports, Field::Queue, Field::IngressTime]);
    let header = Header {
        hop_words: instructions.words() as u8,
        hops_exceeded: trace.overflow,
        instructions,
        domain,
        domain_instructions: INSTRUCTION_SEQUENCE,
        ..Header::default()
    };
    let hops: Vec<Hop> = trace.nodes.iter().map(hop).collect();
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, UDP, 64];
    packet.extend(from.octets());
    packet.extend(to.octets());
    // The ports of probes say nothing; a sum of zero is not checked.
    packet.extend([0, 0]);
    packet.extend(INT_PORT.to_be_bytes());
    packet.extend([0; 4]);
    let next = Next::Transport { protocol: UDP };
    // At most ten nodes of five words, which a shim can say.
    let _ = Embedded::write(Kind::EmbedData, next, &header, &hops, Some(sequence), &mut packet);
    packet.extend([0; 8]);
    packet
}

fn hop(node: &IoamNode) -> Hop {
    let time = node.seconds.map(|seconds| {
        u64::from(seconds) * 1_000_000_000 + u64::from(node.microseconds.unwrap_or(0)) * 1000
    });
    Hop {
        node: node.node,
        ingress_port: node.ingress,
        egress_port: node.egress,
        queue: node.queue_bytes.map(|_| 0),
        queue_bytes: node.queue_bytes,
        ingress_ns: time,
        ..Hop::default()
    }
}
