//! The place of INT in an IP packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::header::{Embedded, Next};
use crate::Error;
use crate::bytes::Reader;

const WHAT: &str = "an IP packet";
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A flow of packets: addresses, protocol and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Address of the sender.
    pub source: IpAddr,
    /// Address of the receiver.
    pub destination: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Port of the sender; 0 if the protocol has no ports.
    pub source_port: u16,
    /// Port of the receiver; 0 if the protocol has no ports.
    pub destination_port: u16,
}

/// An IP packet, or its begin, with INT in it if there is any. The flow is that of the packet without INT.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The flow that the original packet belongs to.
    pub flow: Flow,
    /// INT.
    pub embedded: Option<Embedded<'a>>,
}

impl<'a> Packet<'a> {
    /// Reads a packet from its IP header on. UDP packets to `int_port` have INT, which is read
    /// as by a node of `domain`.
    ///
    /// # Errors
    /// The packet ends before its headers, is a fragment, or its INT is malformed.
    pub fn read(bytes: &'a [u8], int_port: u16, domain: u16) -> Result<Self, Error> {
        let mut reader = Reader::new(WHAT, bytes);
        let (source, destination, protocol) = addresses(&mut reader)?;
        let mut flow = Flow { source, destination, protocol, source_port: 0, destination_port: 0 };
        if !matches!(protocol, TCP | UDP) {
            return Ok(Self { flow, embedded: None });
        }
        (flow.source_port, flow.destination_port) = (reader.u16()?, reader.u16()?);
        if protocol != UDP || flow.destination_port != int_port {
            return Ok(Self { flow, embedded: None });
        }
        // Length and checksum of UDP.
        reader.take(4)?;
        let (embedded, rest) = Embedded::read(reader.rest(), domain)?;
        match embedded.shim.next {
            Next::Payload { .. } => {
                let why =
                    format!("INT at port {int_port} has next protocol type 0, which is for DSCP");
                return Err(Error::malformed(WHAT, why));
            }
            Next::UdpPayload { port } => flow.destination_port = port,
            Next::Transport { protocol } => {
                flow.protocol = protocol;
                (flow.source_port, flow.destination_port) = (0, 0);
                if matches!(protocol, TCP | UDP) {
                    let mut transport = Reader::new(WHAT, rest);
                    (flow.source_port, flow.destination_port) =
                        (transport.u16()?, transport.u16()?);
                }
            }
        }
        Ok(Self { flow, embedded: Some(embedded) })
    }
}

/// Reads the IP header, and returns source, destination and protocol.
fn addresses(reader: &mut Reader<'_>) -> Result<(IpAddr, IpAddr, u8), Error> {
    let first = reader.u8()?;
    match first >> 4 {
        4 => {
            let bytes = usize::from(first & 0xf) * 4;
            if bytes < 20 {
                let why = format!("the IPv4 header has {bytes} bytes; it has at least 20");
                return Err(Error::malformed(WHAT, why));
            }
            let head = reader.take(bytes - 1)?;
            let mut fields = Reader::new(WHAT, head);
            fields.take(5)?;
            let fragment = fields.u16()?;
            if fragment & 0x1fff != 0 {
                return Err(Error::malformed(WHAT, "a later fragment has no ports"));
            }
            fields.u8()?;
            let protocol = fields.u8()?;
            fields.u16()?;
            let source = Ipv4Addr::from(fields.u32()?);
            let destination = Ipv4Addr::from(fields.u32()?);
            Ok((source.into(), destination.into(), protocol))
        }
        6 => {
            reader.take(5)?;
            let protocol = reader.u8()?;
            reader.u8()?;
            let mut address = || -> Result<Ipv6Addr, Error> {
                let (high, low) = (reader.u64()?, reader.u64()?);
                Ok(Ipv6Addr::from(u128::from(high) << 64 | u128::from(low)))
            };
            Ok((address()?.into(), address()?.into(), protocol))
        }
        other => Err(Error::malformed(WHAT, format!("IP version {other}; a version is 4 or 6"))),
    }
}
