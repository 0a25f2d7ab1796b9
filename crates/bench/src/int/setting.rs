//! A lab of two hosts with two switches between them, whose data planes add telemetry.

use std::error::Error;
use std::net::{Ipv4Addr, UdpSocket};

use skopos_net::int::{DOMAIN, Hop, Packet};
use skopos_net::lab::Lab;
use skopos_net::plane::{Direction, INT_PORT, Mode, Plane, PlaneSettings, Port, Watch};

use crate::ending;

pub(super) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The destination port of packets that are watched.
pub(super) const WATCHED: u16 = 7000;

/// The rate of a slow link between the switches.
pub(super) const RATE_MBIT: f64 = 50.0;

/// The bytes that its queue holds.
pub(super) const QUEUE_BYTES: u32 = 500_000;

/// Builds the lab; without a rate, the link between the switches is as fast as the machine.
pub(super) fn lab(rate_mbit: Option<f64>) -> Outcome<Lab> {
    let rate = rate_mbit.map_or_else(String::new, |rate| {
        format!("rate_mbit = {rate}\nqueue_bytes = {QUEUE_BYTES}\n")
    });
    let text = format!(
        "name = 'cost{}'\n[[host]]\nname = 'a'\n[[host]]\nname = 'b'\n[[switch]]\nname = 's1'\n[[switch]]\n\
         name = 's2'\n[[link]]\nends = ['a', 's1']\n[[link]]\nends = ['s1', 's2']\n{rate}[[link]]\n\
         ends = ['s2', 'b']\n[[link]]\nends = ['a', 's1']\n",
        std::process::id()
    );
    Ok(ending::lab(&text)?)
}

/// Opens the data planes of both switches: the first is the source, the second the sink.
pub(super) fn planes(lab: &Lab, rate_mbit: Option<f64>) -> Outcome<[Plane; 2]> {
    let open = |node: u32, name: &str| -> Outcome<Plane> {
        let mut settings = PlaneSettings::new(node);
        settings.watches = vec![Watch { destination_port: Some(WATCHED), ..Watch::default() }];
        settings.mode = Mode::EmbedData;
        for (id, port) in (1..).zip(lab.ports(name)) {
            let is_between = port.peer.starts_with('s');
            settings.ports.push(Port {
                interface: port.interface,
                id,
                rate_bytes_per_second: rate_mbit
                    .filter(|_| is_between)
                    .map(|r| (r * 125_000.0) as u64),
                source: (port.peer == "a").then_some(Direction::Ingress),
                transit: true,
                sink: (port.peer == "b").then_some(Direction::Egress),
            });
        }
        Ok(Plane::open(&lab.namespace(name)?, settings)?)
    };
    Ok([open(1, "s1")?, open(2, "s2")?])
}

pub(super) fn socket(lab: &Lab, host: &str, port: u16) -> Outcome<UdpSocket> {
    let opened = lab.namespace(host)?.run(|| Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))))?;
    Ok(opened?)
}

/// A packet with its hops and the time at which it came to its sink.
pub(super) struct Seen {
    pub(super) hops: Vec<Hop>,
    pub(super) sink_ns: Option<u64>,
    pub(super) sequence: Option<u32>,
}

pub(super) fn seen(plane: &mut Plane) -> Vec<Seen> {
    let mut all = Vec::new();
    plane.events(|event| {
        let read = Packet::read(event.packet, INT_PORT, DOMAIN);
        let Ok(Packet { embedded: Some(int), .. }) = read else { return };
        all.push(Seen {
            hops: int.hops().collect(),
            sink_ns: event.hop.ingress_ns,
            sequence: int.sequence,
        });
    });
    all
}
