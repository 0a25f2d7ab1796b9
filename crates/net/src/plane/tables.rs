//! The tables that the programs share with this crate, as bytes. The layout is that of `bpf/tables.h`.

use std::net::IpAddr;

use super::settings::{Mode, PlaneSettings, Watch};
use crate::int::INSTRUCTION_SEQUENCE;

/// Bytes of `struct settings`.
pub(super) const SETTINGS_BYTES: usize = 32;
/// Bytes of `struct watch`.
pub(super) const WATCH_BYTES: usize = 72;
/// Bytes of `struct port`.
pub(super) const PORT_BYTES: usize = 80;
/// Bytes of `struct event` before the packet.
const EVENT_HEAD_BYTES: usize = 48;

/// Returns the record of SETTINGS.
pub(super) fn settings(
    settings: &PlaneSettings,
    namespace: u32,
    real_offset: i64,
) -> [u8; SETTINGS_BYTES] {
    let mut record = Record::<SETTINGS_BYTES>::default();
    record.put(&real_offset.to_ne_bytes());
    record.put(&settings.node.to_ne_bytes());
    record.put(&namespace.to_ne_bytes());
    record.put(&settings.int_port.to_be_bytes());
    record.put(&settings.instructions.0.to_be_bytes());
    record.put(&settings.domain.to_be_bytes());
    record.put(&INSTRUCTION_SEQUENCE.to_be_bytes());
    let words = settings.instructions.words() as u8;
    let embeds_instructions = u8::from(settings.mode == Mode::EmbedInstructions);
    record.put(&[words, settings.hops, embeds_instructions, settings.watches.len() as u8]);
    record.put(&u32::from(settings.mode == Mode::Export).to_ne_bytes());
    record.bytes
}

/// Returns a record of WATCHES.
pub(super) fn watch(watch: &Watch) -> [u8; WATCH_BYTES] {
    let mut record = Record::<WATCH_BYTES>::default();
    for network in [watch.source, watch.destination] {
        let (address, mask) =
            network.map_or(([0; 16], [0; 16]), |(address, bits)| masked(address, bits));
        record.put(&address);
        record.put(&mask);
    }
    record.put(&watch.source_port.unwrap_or(0).to_be_bytes());
    record.put(&watch.destination_port.unwrap_or(0).to_be_bytes());
    let address = watch.source.or(watch.destination).map(|(address, _)| address);
    let version = address.map_or(0, |address| if address.is_ipv4() { 4 } else { 6 });
    record.put(&[watch.protocol.unwrap_or(0), version]);
    record.bytes
}

/// Returns the address with its host bits cleared, and the mask.
fn masked(address: IpAddr, bits: u8) -> ([u8; 16], [u8; 16]) {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes = address.octets(),
    }
    let mask = match u32::from(bits).min(128) {
        0 => 0,
        bits => u128::MAX << (128 - bits),
    };
    let mask = mask.to_be_bytes();
    (std::array::from_fn(|at| bytes[at] & mask[at]), mask)
}

/// Returns a record of PORTS before any packet.
pub(super) fn port(id: u16, rate_bytes_per_second: u64) -> [u8; PORT_BYTES] {
    let mut bytes = [0; PORT_BYTES];
    bytes[40..48].copy_from_slice(&rate_bytes_per_second.to_ne_bytes());
    bytes[72..76].copy_from_slice(&u32::from(id).to_ne_bytes());
    bytes
}

/// The state of a port: the begin of `struct port`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortState {
    /// Bytes in the queue.
    pub backlog_bytes: u64,
    /// Nanoseconds that the last packet with INT was in the queue.
    pub sojourn_ns: u64,
}

impl PortState {
    pub(super) fn read(bytes: &[u8; PORT_BYTES]) -> Self {
        let mut fields = bytes
            .chunks_exact(8)
            .map(|field| u64::from_ne_bytes(std::array::from_fn(|at| field[at])));
        let mut next = || fields.next().unwrap_or_default();
        Self { backlog_bytes: next(), sojourn_ns: next() }
    }
}

/// The reason of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A sink took INT from the packet.
    Sink,
    /// A hop of INT-MX, or of INT-XD.
    Hop,
}

/// A packet that a program reports.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The reason.
    pub kind: EventKind,
    /// The values of this node.
    pub hop: crate::int::Hop,
    /// The begin of the packet, from the IP header on.
    pub packet: &'a [u8],
}

impl<'a> Event<'a> {
    /// Reads an event; `None` if it is shorter than its fields say.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let known = |value: u32| (value != u32::MAX).then_some(value);
        let port = |value: u32| u16::try_from(value).ok().filter(|port| *port != u16::MAX);
        let (time, ingress) = (long(0)?, long(8)?);
        let kind = if word(36)? == 1 { EventKind::Sink } else { EventKind::Hop };
        let (latency_ns, queue_bytes) = (known(word(24)?), known(word(28)?));
        let hop = crate::int::Hop {
            ingress_port: port(word(16)?),
            egress_port: port(word(20)?),
            latency_ns,
            queue: queue_bytes.map(|_| 0),
            queue_bytes,
            ingress_ns: (ingress != u64::MAX).then_some(ingress),
            egress_ns: (kind == EventKind::Hop).then(|| time + u64::from(latency_ns.unwrap_or(0))),
            utilisation_ppm: known(word(32)?),
            ..crate::int::Hop::default()
        };
        let packet = bytes.get(EVENT_HEAD_BYTES..)?.get(..word(40)? as usize)?;
        Some(Self { kind, hop, packet })
    }
}

/// A record that is filled from its begin.
struct Record<const N: usize> {
    bytes: [u8; N],
    filled: usize,
}

impl<const N: usize> Default for Record<N> {
    fn default() -> Self {
        Self { bytes: [0; N], filled: 0 }
    }
}

impl<const N: usize> Record<N> {
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.filled..self.filled + field.len()].copy_from_slice(field);
        self.filled += field.len();
    }
}
