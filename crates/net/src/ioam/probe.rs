//! Probes with traces: a prober sends small datagrams to peers, and a sink there reports what their traces say to a
//! collector, as a sink of INT does. So paths appear as facts without a BPF program.
//!
//! # Layout
//! `sequence 32 | time of sending 64`, in nanoseconds since 1970, then the tag of [`Key`]. The tag is also over the addresses of
//! the sender and of the sink, which follow in its bytes and are not sent: a probe is good for its own path, and once. It is not
//! over the trace, which others write on the way.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use super::nodes::NodeData;
use super::socket::{receive, receive_options, set_trace};
use super::trace::{IoamNode, Trace, TraceRequest};
use super::window::Sources;
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

/// Sends probes.
#[derive(Debug)]
pub struct Prober {
    peers: Vec<Peer>,
    key: Key,
    sent: u64,
    failed: u64,
}

/// A receiver of probes.
#[derive(Debug)]
struct Peer {
    address: SocketAddrV6,
    socket: UdpSocket,
    /// The own address on the way to the peer; `None` if the socket is not connected.
    from: Option<Ipv6Addr>,
    /// The number of the next probe.
    sequence: u32,
}

impl Peer {
    fn open(address: SocketAddrV6, request: TraceRequest) -> Result<Self, Error> {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
            .map_err(Error::system("open a UDP socket"))?;
        socket.set_nonblocking(true).map_err(Error::system("set up a socket"))?;
        set_trace(&socket, request)?;
        Ok(Self { address, socket, from: None, sequence: 0 })
    }

    fn send(&mut self, now: u64, key: &Key) -> io::Result<()> {
        let from = match self.from {
            Some(from) => from,
            None => {
                self.socket.connect(self.address)?;
                let SocketAddr::V6(own) = self.socket.local_addr()? else { return Ok(()) };
                *self.from.insert(*own.ip())
            }
        };
        let mut probe = self.sequence.to_be_bytes().to_vec();
        probe.extend(now.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        tag(key, (from, *self.address.ip()), &mut probe);
        let sent = self.socket.send(&probe);
        if sent.is_err() {
            // The addresses of this host may have changed.
            self.from = None;
        }
        sent.map(drop)
    }
}

impl Prober {
    /// Opens sockets whose packets have traces.
    ///
    /// # Errors
    /// The trace is too long, or this process has no CAP_NET_RAW.
    pub fn open(peers: &[SocketAddrV6], request: TraceRequest, key: Key) -> Result<Self, Error> {
        let peers = peers.iter().map(|peer| Peer::open(*peer, request));
        Ok(Self { peers: peers.collect::<Result<_, _>>()?, key, sent: 0, failed: 0 })
    }

    /// Sends a probe to each peer. `now` is the time since 1970 in nanoseconds.
    pub fn send(&mut self, now: u64) {
        for peer in &mut self.peers {
            match peer.send(now, &self.key) {
                Ok(()) => self.sent += 1,
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
    /// The namespace of the traces that are taken; `None` for any.
    namespace: Option<u16>,
    sources: Sources,
    nodes: NodeData,
    counts: ProbeCounts,
}

/// Numbers of probes since the sink was opened. Each probe counts in one of the first six.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    /// Probes that were reported.
    pub taken: u64,
    /// Datagrams without the tag of this site.
    pub forged: u64,
    /// Probes whose time is not that of this machine.
    pub stale: u64,
    /// Probes that came before, and those of further sources.
    pub replayed: u64,
    /// Probes with a trace that contradicts itself, has too many nodes, or is of another namespace.
    pub malformed: u64,
    /// Probes without a trace: a router on the way took the option away, or did not let it pass.
    pub without_trace: u64,
    /// Probes in whose trace a node found no room.
    pub cut_short: u64,
    /// Times that the data of a node was evicted for that of another one.
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
        let (nodes, counts) = (NodeData::default(), ProbeCounts::default());
        let (namespace, sources) = (None, Sources::new(2 * MAX_AGE_NS));
        Ok(Self { socket, local, domain, reporter, key, namespace, sources, nodes, counts })
    }

    /// Takes traces of one namespace alone.
    #[must_use]
    pub fn of_namespace(self, namespace: u16) -> Self {
        Self { namespace: Some(namespace), ..self }
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
        self.nodes.drop_silent(now);
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
        let SocketAddr::V6(local) = self.local else { return };
        let path = (from, *local.ip());
        let Some((sequence, sent)) = verified(&self.key, path, datagram) else {
            self.counts.forged += 1;
            return;
        };
        if now.abs_diff(sent) > MAX_AGE_NS {
            self.counts.stale += 1;
            return;
        }
        if !self.sources.is_new(from, (sent, sequence), now) {
            self.counts.replayed += 1;
            return;
        }
        let is_wanted = |trace: &Trace| self.namespace.is_none_or(|own| own == trace.namespace);
        let trace = match trace {
            Ok(Some(trace)) if !trace.nodes.is_empty() => Some(trace).filter(is_wanted),
            Ok(_) => {
                self.counts.without_trace += 1;
                return;
            }
            Err(_) => None,
        };
        let packet = trace.as_ref().map(|trace| packet(path, self.domain, trace, sequence));
        let (Some(trace), Some(Ok(packet))) = (trace, packet) else {
            self.counts.malformed += 1;
            return;
        };
        self.counts.taken += 1;
        self.counts.cut_short += u64::from(trace.overflow);
        self.keep_data(&trace, now);
        let hop = Hop { ingress_ns: Some(now), ..Hop::default() };
        self.reporter.note(hop, false, &packet);
    }

    fn keep_data(&mut self, trace: &Trace, now: u64) {
        for node in &trace.nodes {
            let (Some(id), Some(data)) = (node.node, node.data) else { continue };
            self.counts.nodes_left_out += u64::from(!self.nodes.note(id, data, now));
        }
    }

    /// Returns the latest data of the namespace at each node that a trace has named lately, by its id. `now` is the time since
    /// 1970 in nanoseconds.
    pub fn nodes(&self, now: u64) -> BTreeMap<u32, u32> {
        self.nodes.all(now)
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

/// Appends the tag of a probe between two addresses.
fn tag(key: &Key, (from, to): (Ipv6Addr, Ipv6Addr), probe: &mut Vec<u8>) {
    let bytes = probe.len();
    probe.extend(from.octets());
    probe.extend(to.octets());
    let tagged = probe.len();
    key.append(probe);
    probe.drain(bytes..tagged);
}

/// Returns sequence and time of a probe between two addresses; `None` if its tag is wrong.
fn verified(key: &Key, (from, to): (Ipv6Addr, Ipv6Addr), datagram: &[u8]) -> Option<(u32, u64)> {
    let (probe, tag) = datagram.split_at_checked(PROBE_BYTES)?;
    let tagged = [probe, &from.octets(), &to.octets(), tag].concat();
    parse(key.verified(&tagged)?.get(..PROBE_BYTES)?)
}

/// Returns the packet that a chain of INT nodes would have made of a probe: collectors read it as any other.
///
/// # Errors
/// A packet has no room for the nodes of the trace.
fn packet(
    (from, to): (Ipv6Addr, Ipv6Addr),
    domain: u16,
    trace: &Trace,
    sequence: u32,
) -> Result<Vec<u8>, Error> {
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
    Embedded::write(Kind::EmbedData, next, &header, &hops, Some(sequence), &mut packet)?;
    packet.extend([0; 8]);
    Ok(packet)
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000_000_000;

    const FROM: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

    fn key() -> Key {
        Key::new(b"a key of the site").expect("long enough")
    }

    fn sink() -> (ProbeSink, UdpSocket) {
        let collector = UdpSocket::bind("[::1]:0").expect("a port");
        let to = collector.local_addr().expect("bound");
        let listen = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0);
        let sink =
            ProbeSink::open(listen, (40, crate::int::DOMAIN), to, key()).expect("it listens");
        (sink.of_namespace(123), collector)
    }

    fn probe(sequence: u32, to: Ipv6Addr) -> Vec<u8> {
        let mut probe = sequence.to_be_bytes().to_vec();
        probe.extend(NOW.to_be_bytes());
        tag(&key(), (FROM, to), &mut probe);
        assert_eq!(probe.len(), PROBE_BYTES + TAG_REPORT_BYTES);
        probe
    }

    fn trace(namespace: u16, nodes: u32) -> Result<Option<Trace>, String> {
        let node = |id| IoamNode { node: Some(id), data: Some(id + 1), ..IoamNode::default() };
        Ok(Some(Trace { namespace, overflow: false, nodes: (0..nodes).map(node).collect() }))
    }

    #[test]
    fn a_probe_counts_once_and_for_its_own_path() {
        let (mut sink, _collector) = sink();
        let own = probe(1, Ipv6Addr::LOCALHOST);
        sink.take(FROM, &own, trace(123, 2), NOW);
        sink.take(FROM, &own, trace(123, 40), NOW + 1);
        // Another source, and a probe to another sink.
        sink.take(Ipv6Addr::LOCALHOST, &own, trace(123, 2), NOW);
        sink.take(FROM, &probe(2, FROM), trace(123, 2), NOW);
        let expected = ProbeCounts { taken: 1, replayed: 1, forged: 2, ..ProbeCounts::default() };
        assert_eq!(sink.counts(), expected);
        assert_eq!(sink.nodes(NOW), BTreeMap::from([(0, 1), (1, 2)]));
    }

    #[test]
    fn a_trace_of_another_namespace_or_with_too_many_nodes_is_not_reported() {
        let (mut sink, _collector) = sink();
        for (sequence, trace) in [(1, trace(124, 2)), (2, trace(123, 61)), (3, trace(123, 40))] {
            sink.take(FROM, &probe(sequence, Ipv6Addr::LOCALHOST), trace, NOW);
        }
        let expected = ProbeCounts { taken: 1, malformed: 2, ..ProbeCounts::default() };
        assert_eq!(sink.counts(), expected);
        assert_eq!(sink.nodes(NOW).len(), 40);
    }
}
