//! The shim and the header of INT, and the stack of hops behind them.

use super::hop::Hop;
use super::instructions::Instructions;
use crate::Error;
use crate::bytes::Reader;

/// The version of the header of INT 2.0 and 2.1.
pub const VERSION: u8 = 2;

/// Bytes of the shim.
pub const SHIM_BYTES: usize = 4;

/// Bytes of the header after the shim, which INT-MD and INT-MX share.
pub const HEADER_BYTES: usize = 12;

/// The domain of Skopos' own sources, unless the settings say otherwise. The number is arbitrary; a site whose switches use
/// it for another domain chooses another one.
pub const DOMAIN: u16 = 0x5c09;

/// The bit of the domain's instructions for the sequence number: one word, which the source alone adds below its
/// own hop. The collector counts loss by it.
pub const INSTRUCTION_SEQUENCE: u16 = 0x8000;

const WHAT: &str = "an INT header";

/// The kind of INT after a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Hops embed their data in the packet.
    EmbedData,
    /// The packet carries instructions, and each hop reports by itself.
    EmbedInstructions,
}

/// The header that follows INT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The payload of the transport header before the shim, which had this DSCP. INT is marked by the DSCP.
    Payload {
        /// The DSCP of the original packet.
        dscp: u8,
    },
    /// The payload of the UDP header before the shim, which had this destination port.
    UdpPayload {
        /// The destination port of the original packet.
        port: u16,
    },
    /// The original transport header. The UDP header before the shim was inserted together with INT.
    Transport {
        /// Its IP protocol number.
        protocol: u8,
    },
}

/// The shim between the UDP header and INT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shim {
    /// The kind of INT.
    pub kind: Kind,
    /// Words of INT after the shim.
    pub words: u8,
    /// The header after INT.
    pub next: Next,
}

impl Shim {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let (first, words, last) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let kind = match first >> 4 {
            1 => Kind::EmbedData,
            3 => Kind::EmbedInstructions,
            other => {
                let why = format!("the shim has type {other}; this build reads 1 (MD) and 3 (MX)");
                return Err(Error::malformed(WHAT, why));
            }
        };
        let next = match first >> 2 & 3 {
            0 => Next::Payload { dscp: (last >> 2) as u8 & 0x3f },
            1 => Next::UdpPayload { port: last },
            2 => Next::Transport { protocol: last as u8 },
            other => {
                let why = format!("the shim has next protocol type {other}; a type is 0, 1 or 2");
                return Err(Error::malformed(WHAT, why));
            }
        };
        Ok(Self { kind, words, next })
    }

    fn write(self, out: &mut Vec<u8>) {
        let kind = match self.kind {
            Kind::EmbedData => 1u8,
            Kind::EmbedInstructions => 3,
        };
        let (next, last) = match self.next {
            Next::Payload { dscp } => (0u8, u16::from(dscp & 0x3f) << 2),
            Next::UdpPayload { port } => (1, port),
            Next::Transport { protocol } => (2, u16::from(protocol)),
        };
        out.extend([kind << 4 | next << 2, self.words]);
        out.extend(last.to_be_bytes());
    }
}

/// The header of INT-MD or INT-MX.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The sink discards the packet after it has taken INT: the packet is a copy.
    pub discard: bool,
    /// A hop did not add its data because no hop remained.
    pub hops_exceeded: bool,
    /// A hop did not add its data because the packet would not have fitted the link.
    pub mtu_exceeded: bool,
    /// Words of a hop. 0 in INT-MX.
    pub hop_words: u8,
    /// Hops that may still add data. 0 in INT-MX.
    pub remaining: u8,
    /// The content of a hop.
    pub instructions: Instructions,
    /// The domain of the next two fields.
    pub domain: u16,
    /// The domain's own instructions.
    pub domain_instructions: u16,
    /// The domain's own flags.
    pub domain_flags: u16,
}

impl Header {
    fn read(reader: &mut Reader<'_>, kind: Kind) -> Result<Self, Error> {
        let first = reader.u32()?;
        let version = (first >> 28) as u8;
        if version != VERSION {
            return Err(Error::Version { what: WHAT, found: version, known: VERSION });
        }
        let bit = |at: u32| first >> at & 1 == 1;
        let embeds = kind == Kind::EmbedData;
        Ok(Self {
            discard: bit(27),
            hops_exceeded: bit(26),
            mtu_exceeded: bit(25),
            hop_words: if embeds { (first >> 8) as u8 & 0x1f } else { 0 },
            remaining: if embeds { first as u8 } else { 0 },
            instructions: Instructions(reader.u16()?),
            domain: reader.u16()?,
            domain_instructions: reader.u16()?,
            domain_flags: reader.u16()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, at: u32| u32::from(set) << at;
        let flags =
            flag(self.discard, 27) | flag(self.hops_exceeded, 26) | flag(self.mtu_exceeded, 25);
        let first = u32::from(VERSION) << 28
            | flags
            | u32::from(self.hop_words & 0x1f) << 8
            | u32::from(self.remaining);
        out.extend(first.to_be_bytes());
        for field in [self.instructions.0, self.domain, self.domain_instructions, self.domain_flags]
        {
            out.extend(field.to_be_bytes());
        }
    }

    /// True if a source of domain `own` adds its sequence number below its hop.
    fn has_sequence(&self, own: u16) -> bool {
        self.domain != 0
            && self.domain == own
            && self.domain_instructions & INSTRUCTION_SEQUENCE != 0
    }

    /// Number of bytes that the source alone added below its hop, in a stack of `bytes`. Another domain than `own` may
    /// have any words of its own there: the rest that is not a whole hop.
    fn source_bytes(&self, own: u16, bytes: usize) -> usize {
        match (self.hop_words, self.domain) {
            (0, _) | (_, 0) => 0,
            (_, domain) if domain == own => usize::from(self.has_sequence(own)) * 4,
            (hop_words, _) => bytes % (usize::from(hop_words) * 4),
        }
    }
}

/// INT as it stands in a packet, from the shim to the end of the stack.
#[derive(Clone, Copy, Debug)]
pub struct Embedded<'a> {
    /// The shim.
    pub shim: Shim,
    /// The header.
    pub header: Header,
    /// The hops, last hop first, without the words of the source.
    stack: &'a [u8],
    /// The number that the source gave the packet, if it is of the reader's domain.
    pub sequence: Option<u32>,
}

impl<'a> Embedded<'a> {
    /// Reads INT from its shim on, as a node of domain `own`, and returns it with the bytes behind it.
    ///
    /// # Errors
    /// The bytes end before the stack does, the version is another one, or the lengths contradict each other.
    pub fn read(bytes: &'a [u8], own: u16) -> Result<(Self, &'a [u8]), Error> {
        let mut reader = Reader::new(WHAT, bytes);
        let shim = Shim::read(&mut reader)?;
        let mut inside = Reader::new(WHAT, reader.take(usize::from(shim.words) * 4)?);
        let header = Header::read(&mut inside, shim.kind)?;
        let whole = inside.rest();
        let hop_bytes = usize::from(header.hop_words) * 4;
        let Some(stack_bytes) = whole.len().checked_sub(header.source_bytes(own, whole.len()))
        else {
            let why = format!("{} words leave no place for the words of the source", shim.words);
            return Err(Error::malformed(WHAT, why));
        };
        if stack_bytes.checked_rem(hop_bytes).unwrap_or(stack_bytes) != 0 {
            let why = format!(
                "a stack of {stack_bytes} bytes is not a whole number of hops of {hop_bytes} bytes"
            );
            return Err(Error::malformed(WHAT, why));
        }
        let (stack, below) = whole.split_at(stack_bytes);
        if hop_bytes < header.instructions.words() * 4 && shim.kind == Kind::EmbedData {
            let why = format!(
                "a hop has {} words, and its instructions need {}",
                header.hop_words,
                header.instructions.words()
            );
            return Err(Error::malformed(WHAT, why));
        }
        let sequence = below.first_chunk().filter(|_| header.has_sequence(own));
        let sequence = sequence.map(|bytes| u32::from_be_bytes(*bytes));
        Ok((Self { shim, header, stack, sequence }, reader.rest()))
    }

    /// Number of hops in the stack.
    pub fn hops_count(&self) -> usize {
        match usize::from(self.header.hop_words) * 4 {
            0 => 0,
            bytes => self.stack.len() / bytes,
        }
    }

    /// Returns the hops in the order of the path: the source first.
    pub fn hops(&self) -> impl Iterator<Item = Hop> + use<'a> {
        let bytes = (usize::from(self.header.hop_words) * 4).max(1);
        let instructions = self.header.instructions;
        self.stack.chunks_exact(bytes).rev().filter_map(move |hop| {
            // The length of each hop was compared with its instructions.
            Hop::read(&mut Reader::new(WHAT, hop), instructions).ok()
        })
    }

    /// Appends INT with these hops, source first, as a source and its transit nodes would leave it.
    ///
    /// # Errors
    /// The stack has more words than a shim can say.
    pub fn write(
        kind: Kind,
        next: Next,
        header: &Header,
        hops: &[Hop],
        sequence: Option<u32>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let own = usize::from(header.has_sequence(header.domain) && kind == Kind::EmbedData);
        let words = HEADER_BYTES / 4 + hops.len() * usize::from(header.hop_words) + own;
        let words = u8::try_from(words)
            .map_err(|_| Error::malformed(WHAT, format!("{words} words are more than 255")))?;
        Shim { kind, words, next }.write(out);
        header.write(out);
        for hop in hops.iter().rev() {
            let begin = out.len();
            hop.write(out, header.instructions);
            // The domain's own words of a hop are not known here.
            out.resize(begin + usize::from(header.hop_words) * 4, 0xff);
        }
        if own > 0 {
            out.extend(sequence.unwrap_or(u32::MAX).to_be_bytes());
        }
        Ok(())
    }
}
