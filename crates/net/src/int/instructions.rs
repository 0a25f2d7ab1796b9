//! The bitmap that says which values each hop adds.

/// A value that a hop can add. The number is its bit, counted from the most significant one (INT 2.1, section
/// "INT-MD Metadata Header Format").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Field {
    /// The id of the node: one word.
    Node = 0,
    /// Ingress and egress port, 16 bits each: one word.
    Ports = 1,
    /// Nanoseconds in the node: one word.
    Latency = 2,
    /// Queue, 8 bits, and its occupancy in bytes, 24 bits: one word.
    Queue = 3,
    /// Time of arrival in nanoseconds: two words.
    IngressTime = 4,
    /// Time of departure in nanoseconds: two words.
    EgressTime = 5,
    /// Logical ingress and egress port, 32 bits each: two words.
    LogicalPorts = 6,
    /// Used share of the egress link, in millionths of its rate: one word.
    Utilisation = 7,
    /// Buffer, 8 bits, and its occupancy, 24 bits: one word.
    Buffer = 8,
    /// Complement that keeps the checksum of the packet: one word.
    Checksum = 15,
}

/// The bitmap. In a telemetry report it has the same bits, without the node and with the reason of a drop in the
/// place of the checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instructions(pub u16);

impl Instructions {
    /// All fields that the data plane of this crate fills: node, ports, latency, queue, time of arrival, time of
    /// departure, utilisation.
    pub const ALL_OF_PLANE: Self = Self(0b1111_1101_0000_0000);

    /// Returns the bitmap with these fields.
    pub fn of(fields: &[Field]) -> Self {
        Self(fields.iter().fold(0, |bits, field| bits | (0x8000 >> *field as u8)))
    }

    /// True if the bit of the field is set.
    pub fn has(self, field: Field) -> bool {
        self.0 & (0x8000 >> field as u8) != 0
    }

    /// Number of words that the set bits take: two for the bits 4 to 6, one for each other bit, reserved bits
    /// included.
    pub fn words(self) -> usize {
        (self.0.count_ones() + (self.0 & 0b0000_1110_0000_0000).count_ones()) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_specification() {
        let check =
            |bits: u16, words: usize| assert_eq!(Instructions(bits).words(), words, "{bits:#018b}");
        check(0, 0);
        // The example of the specification: node and queue.
        check(0b1001_0000_0000_0000, 2);
        check(0b0000_1110_0000_0000, 6);
        check(0b0000_0000_0111_1110, 6);
        check(0xffff, 19);
        check(Instructions::ALL_OF_PLANE.0, 9);
        assert_eq!(Instructions::of(&[Field::Node, Field::Queue]).0, 0b1001_0000_0000_0000);
    }
}
