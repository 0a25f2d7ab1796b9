//! Collects telemetry reports from UDP, and turns them into facts of the families `path`, `port`, `int_node` and
//! `telemetry`.
//!
//! # Invariants
//! - A datagram is parsed only if its source is allowed, has not used up its rate, and if a key is set, has the
//!   right tag.
//! - All state is bounded; what has no room is counted.
//! - [`Collector::handle`] and all below it have no clock and no socket.
//!
//! A program calls [`Collector::receive`] as often as datagrams come, and [`Collector::publish`] once for each
//! interval; [`Collector::poll`] does both. At high rates `receive` wants a thread of its own: the buffer of the
//! socket holds about 20 000 reports.
//!
//! Read in this order: `settings`, `counts`, `admission`, `sequence`, `table`, `state`, this file, `facts`, and a file
//! for each family.

mod settings;
mod counts;
mod admission;
mod sequence;
mod table;
mod state;
mod facts;
mod path;
mod port;
mod int_node;
mod telemetry;
mod drops;
mod filter;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use skopos_model::schema;

use crate::Error;
use crate::int::{Inner, Packet, Reports};

pub use admission::MAX_SOURCES;
pub use counts::CollectorCounts;
pub use drops::of as kernel_drops;
pub use facts::FactSink;
pub use sequence::WINDOW;
pub use settings::CollectorSettings;
pub use state::{MAX_NODES, MAX_PATHS, MAX_PORTS};

use admission::Admission;
use state::State;

/// The most datagrams that one call of [`Collector::receive`] takes, so that a flood does not keep it for ever.
pub const MAX_DATAGRAMS: usize = 8192;

/// The most bytes of a datagram. A longer one is cut off, and so malformed; an Ethernet jumbo frame is shorter.
const DATAGRAM_BYTES: usize = 9216;

/// Bytes that the kernel keeps for a collector that is busy.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// A collector of telemetry reports.
#[derive(Debug)]
pub struct Collector {
    socket: UdpSocket,
    settings: CollectorSettings,
    admission: Admission,
    state: State,
    counts: CollectorCounts,
    buffer: Vec<u8>,
}

impl Collector {
    /// Opens a collector that listens at `address`.
    ///
    /// # Errors
    /// The address is in use, or is not of this machine.
    pub fn new(address: SocketAddr, settings: CollectorSettings) -> Result<Self, Error> {
        let socket =
            UdpSocket::bind(address).map_err(Error::system(format!("listen at {address}")))?;
        socket.set_nonblocking(true).map_err(Error::system("set up a socket"))?;
        // The kernel gives less if the administrator limits it.
        let _ =
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES)
                .or_else(|_| {
                    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)
                });
        // Without it, admission drops the same datagrams at a higher cost.
        let _ = filter::attach(&socket, &settings.sources);
        Ok(Self {
            socket,
            settings,
            admission: Admission::default(),
            state: State::new(),
            counts: CollectorCounts::default(),
            buffer: vec![0; DATAGRAM_BYTES],
        })
    }

    /// Returns the address at which the collector listens.
    ///
    /// # Errors
    /// The kernel does not return it.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        self.socket.local_addr().map_err(Error::system("ask for the address of a socket"))
    }

    /// Takes the datagrams that wait, at most [`MAX_DATAGRAMS`]. `now` is the time since any fixed point. Returns
    /// their number.
    ///
    /// # Errors
    /// The socket failed.
    pub fn receive(&mut self, now: Duration) -> Result<usize, Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut count = 0;
        let outcome = loop {
            if count == MAX_DATAGRAMS {
                break Ok(count);
            }
            match self.socket.recv_from(&mut buffer) {
                Ok((bytes, from)) => {
                    count += 1;
                    self.handle(from.ip(), &buffer[..bytes], now);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break Ok(count),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => break Err(Error::system("receive telemetry reports")(e)),
            }
        };
        self.buffer = buffer;
        outcome
    }

    /// Takes one datagram.
    pub fn handle(&mut self, from: IpAddr, datagram: &[u8], now: Duration) {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.counts.datagrams += 1;
        let Self { settings, admission, counts, .. } = self;
        let Some(content) = admission.admit(settings, from, datagram, now, counts) else { return };
        let Ok(reports) = Reports::read(content) else {
            self.counts.malformed += 1;
            return;
        };
        let group = reports.group;
        let own = self.settings.domain;
        let is_foreign = |domain: u16| domain != 0 && domain != own;
        let mut newest = None;
        for report in reports.clone().flatten() {
            if is_foreign(report.domain) {
                // Nothing is noted: a node of ours may have the same id.
                self.counts.foreign_domains += 1;
                return;
            }
            newest = newest.max(report.hop.ingress_ns);
        }
        if !self.state.note_group(&group, newest, now, &mut self.counts) {
            self.counts.replays += 1;
            if self.settings.key.is_some() {
                return;
            }
        }
        for report in reports {
            let Ok(report) = report else {
                self.counts.malformed += 1;
                return;
            };
            self.counts.reports += 1;
            let packet = match report.inner {
                Inner::Ip(packet) => Some(Packet::read(packet, self.settings.int_port, own)),
                _ => None,
            };
            if let Some(Ok(Packet { embedded: Some(int), .. })) = &packet
                && is_foreign(int.header.domain)
            {
                self.counts.foreign_domains += 1;
                continue;
            }
            self.state.note_report(&group, &report, now, &mut self.counts);
            match packet {
                Some(Ok(Packet { flow, embedded: Some(int) })) if !report.intermediate => {
                    self.state.note_packet(&flow, &int, &report.hop, now, &mut self.counts);
                }
                Some(Err(_)) => self.counts.malformed += 1,
                _ => {}
            }
        }
    }

    /// Hands all facts to `sink`. The maxima begin anew.
    pub fn publish(&mut self, sink: &mut dyn FactSink) {
        if let Some(drops) = drops::of(&self.socket) {
            self.counts.kernel_drops = drops;
        }
        self.remove_gone(sink);
        let mut instance = String::new();
        for (key, state) in self.state.paths.iter_mut() {
            path::name(key, &mut instance);
            self.counts.hops_left_out += path::publish(&instance, state, sink);
        }
        for (key, state) in self.state.ports.iter_mut() {
            port::name(key, &mut instance);
            port::publish(&instance, state, sink);
        }
        for (key, state) in self.state.nodes.iter_mut() {
            int_node::name(key, &mut instance);
            int_node::publish(&instance, state, sink);
        }
        telemetry::publish(&self.counts, sink);
    }

    fn remove_gone(&mut self, sink: &mut dyn FactSink) {
        let mut instance = String::new();
        for key in self.state.paths.take_gone() {
            path::name(key, &mut instance);
            sink.remove(&schema::path::FAMILY, &instance);
        }
        for key in self.state.ports.take_gone() {
            port::name(key, &mut instance);
            sink.remove(&schema::port::FAMILY, &instance);
        }
        for key in self.state.nodes.take_gone() {
            int_node::name(key, &mut instance);
            sink.remove(&schema::int_node::FAMILY, &instance);
        }
    }

    /// Takes all datagrams that wait, and hands over all facts. Returns the number of datagrams.
    ///
    /// # Errors
    /// The socket failed; the facts were handed over all the same.
    pub fn poll(&mut self, now: Duration, sink: &mut dyn FactSink) -> Result<usize, Error> {
        let received = self.receive(now);
        self.publish(sink);
        received
    }

    /// Returns the numbers since the collector was opened.
    pub fn counts(&self) -> CollectorCounts {
        self.counts
    }

    /// Returns the numbers of paths, ports and nodes that are known.
    pub fn sizes(&self) -> (usize, usize, usize) {
        (self.state.paths.len(), self.state.ports.len(), self.state.nodes.len())
    }
}

/// The descriptor is readable when datagrams wait.
impl AsFd for Collector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
