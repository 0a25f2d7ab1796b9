//! The settings of a node's data plane.

use std::net::IpAddr;

use skopos_bpf::Direction;

use crate::int::{DOMAIN, Instructions};

/// The most flows that a node watches: the programs compare a packet with each of them.
pub const MAX_WATCHES: usize = 16;

/// The most ports of a node. A switch has at most as many front ports.
pub const MAX_PORTS: usize = 128;

/// The most hops that add data, unless the settings say otherwise: with all values, twelve hops fit an event.
pub const HOPS: u8 = 12;

/// The UDP port of INT, unless the settings say otherwise. IANA has not assigned one; this one is of the private
/// range.
pub const INT_PORT: u16 = 49_601;

/// The mode of INT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// INT-MD: each hop adds its data to the packet, and the sink reports all of them.
    #[default]
    EmbedData,
    /// INT-MX: packets carry instructions, and each hop reports its own data.
    EmbedInstructions,
    /// INT-XD: packets stay as they are; each hop reports its own data about the flows that it watches.
    Export,
}

/// A flow to watch. An absent field is any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// IP protocol number: 6 for TCP, 17 for UDP.
    pub protocol: Option<u8>,
    /// Network of the sender, with the number of bits of its prefix.
    pub source: Option<(IpAddr, u8)>,
    /// Network of the receiver, with the number of bits of its prefix.
    pub destination: Option<(IpAddr, u8)>,
    /// Port of the sender.
    pub source_port: Option<u16>,
    /// Port of the receiver.
    pub destination_port: Option<u16>,
}

/// An interface with its part in INT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Name of the interface.
    pub interface: String,
    /// Number of the port in INT.
    pub id: u16,
    /// The rate of the link; without it, the use of the link is not known.
    pub rate_bytes_per_second: Option<u64>,
    /// The direction in which packets of watched flows get INT.
    pub source: Option<Direction>,
    /// Packets with INT get the data of this node when they leave.
    pub transit: bool,
    /// The direction in which INT is taken from packets.
    pub sink: Option<Direction>,
}

/// The settings of a node's data plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaneSettings {
    /// Id of the node in INT.
    pub node: u32,
    /// The UDP port of INT.
    pub int_port: u16,
    /// The domain of sources: that of all nodes whose ids and clocks belong together. Not 0, the domain that is not known.
    pub domain: u16,
    /// The mode of sources.
    pub mode: Mode,
    /// The values that a source requests.
    pub instructions: Instructions,
    /// The most hops that a source lets add data.
    pub hops: u8,
    /// The flows that a source watches.
    pub watches: Vec<Watch>,
    /// The interfaces.
    pub ports: Vec<Port>,
}

impl PlaneSettings {
    /// Returns the settings of a node without interfaces and flows.
    pub fn new(node: u32) -> Self {
        Self {
            node,
            int_port: INT_PORT,
            domain: DOMAIN,
            mode: Mode::default(),
            instructions: Instructions::ALL_OF_PLANE,
            hops: HOPS,
            watches: Vec::new(),
            ports: Vec::new(),
        }
    }
}
