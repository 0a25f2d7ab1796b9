//! The values that one hop adds.

use super::instructions::{Field, Instructions};
use crate::Error;
use crate::bytes::Reader;

/// The values of one hop. A value is absent if it was not requested, or if the node did not know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Id of the node.
    pub node: Option<u32>,
    /// Ingress port.
    pub ingress_port: Option<u16>,
    /// Egress port.
    pub egress_port: Option<u16>,
    /// Nanoseconds in the node.
    pub latency_ns: Option<u32>,
    /// Queue.
    pub queue: Option<u8>,
    /// Bytes in the queue.
    pub queue_bytes: Option<u32>,
    /// Time of arrival, in nanoseconds of the node's clock.
    pub ingress_ns: Option<u64>,
    /// Time of departure, in nanoseconds of the node's clock.
    pub egress_ns: Option<u64>,
    /// Used share of the egress link, in millionths.
    pub utilisation_ppm: Option<u32>,
    /// Reason of a drop, in a report about one.
    pub drop_reason: Option<u8>,
}

/// The largest occupancy that 24 bits hold beside the value that is not known.
const MAX_OCCUPANCY: u32 = 0xff_fffe;

impl Hop {
    /// Reads the values of one hop.
    pub(super) fn read(reader: &mut Reader<'_>, instructions: Instructions) -> Result<Self, Error> {
        let mut hop = Self::default();
        for bit in 0..16u8 {
            if instructions.0 & (0x8000 >> bit) != 0 {
                hop.read_field(reader, bit)?;
            }
        }
        Ok(hop)
    }

    fn read_field(&mut self, reader: &mut Reader<'_>, bit: u8) -> Result<(), Error> {
        match bit {
            4 => self.ingress_ns = known64(reader.u64()?),
            5 => self.egress_ns = known64(reader.u64()?),
            6 => drop(reader.u64()?),
            _ => {
                let Some(word) = known32(reader.u32()?) else { return Ok(()) };
                match bit {
                    0 => self.node = Some(word),
                    1 => {
                        let (ingress, egress) = ((word >> 16) as u16, word as u16);
                        self.ingress_port = (ingress != u16::MAX).then_some(ingress);
                        self.egress_port = (egress != u16::MAX).then_some(egress);
                    }
                    2 => self.latency_ns = Some(word),
                    3 => {
                        self.queue = Some((word >> 24) as u8);
                        let bytes = word & 0xff_ffff;
                        self.queue_bytes = (bytes <= MAX_OCCUPANCY).then_some(bytes);
                    }
                    7 => self.utilisation_ppm = Some(word),
                    // Buffers, the complement of a checksum, and bits that a later version defines.
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Appends the values that `instructions` request, in their order.
    pub fn write(&self, out: &mut Vec<u8>, instructions: Instructions) {
        let word = |value: Option<u32>| value.unwrap_or(u32::MAX).to_be_bytes();
        let long = |value: Option<u64>| value.unwrap_or(u64::MAX).to_be_bytes();
        for bit in (0..16u8).filter(|bit| instructions.0 & (0x8000 >> bit) != 0) {
            match bit {
                0 => out.extend(word(self.node)),
                1 => {
                    out.extend(self.ingress_port.unwrap_or(u16::MAX).to_be_bytes());
                    out.extend(self.egress_port.unwrap_or(u16::MAX).to_be_bytes());
                }
                2 => out.extend(word(self.latency_ns)),
                3 => out.extend(word(self.queue_word())),
                4 => out.extend(long(self.ingress_ns)),
                5 => out.extend(long(self.egress_ns)),
                6 => out.extend(long(None)),
                7 => out.extend(word(self.utilisation_ppm)),
                _ => out.extend(word(None)),
            }
        }
    }

    fn queue_word(&self) -> Option<u32> {
        let bytes = self.queue_bytes.map(|bytes| bytes.min(MAX_OCCUPANCY));
        let (queue, bytes) = (self.queue?, bytes.unwrap_or(0xff_ffff));
        Some(u32::from(queue) << 24 | bytes)
    }

    /// True if the hop has the value of `field`, or a part of it.
    pub fn knows(&self, field: Field) -> bool {
        match field {
            Field::Node => self.node.is_some(),
            Field::Ports => self.ingress_port.is_some() || self.egress_port.is_some(),
            Field::Latency => self.latency_ns.is_some(),
            Field::Queue => self.queue.is_some(),
            Field::IngressTime => self.ingress_ns.is_some(),
            Field::EgressTime => self.egress_ns.is_some(),
            Field::Utilisation => self.utilisation_ppm.is_some(),
            Field::LogicalPorts | Field::Buffer | Field::Checksum => false,
        }
    }
}

fn known32(value: u32) -> Option<u32> {
    (value != u32::MAX).then_some(value)
}

fn known64(value: u64) -> Option<u64> {
    (value != u64::MAX).then_some(value)
}
