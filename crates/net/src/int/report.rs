//! Telemetry Report 2.0: the packets that sinks, and nodes that report by themselves, send to a collector.
//!
//! # Layout
//! ```text
//! group:  version 4 | hardware 6 | sequence 22
//!         node 32
//! report: type 4 | inner type 4 | words after this one 8 | words of metadata 8 | D Q F I 4 | 0 4
//!         (type 1) bits of metadata 16 | domain 16
//!         (type 1) domain bits 16 | domain status 16
//!         (type 1) metadata
//!         inner content: the begin of a packet, or type, length, value
//! ```

use super::hop::Hop;
use super::instructions::Instructions;
use crate::Error;
use crate::bytes::Reader;

/// The version of the format.
pub const REPORT_VERSION: u8 = 2;

/// Bytes of the header of a group.
pub const GROUP_BYTES: usize = 8;

/// The largest report: its length is a byte that counts words, and the first word is not counted.
pub const MAX_REPORT_BYTES: usize = 4 + 255 * 4;

const WHAT: &str = "a telemetry report";

/// Words of a report of type 1 before its metadata.
const FIXED_WORDS: usize = 2;

/// The node has no bit in reports: it is in the header of the group.
const NODE_BIT: u16 = 0x8000;
/// In reports the last bit stands for queue, reason of a drop, and padding.
const DROP_BIT: u16 = 0x0001;

/// The header of a group of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The part of the node that reports; 6 bits.
    pub hardware: u8,
    /// Number of the group among those of node and hardware; 22 bits.
    pub sequence: u32,
    /// Id of the node.
    pub node: u32,
}

/// The content behind the metadata of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner<'a> {
    /// No content.
    None,
    /// An Ethernet frame, cut off.
    Ethernet(&'a [u8]),
    /// An IP packet, version 4 or 6, cut off.
    Ip(&'a [u8]),
    /// Content that this build does not read: domain-specific data.
    Other(u8),
}

/// One report: the values of the node that reports, and the packet that it is about.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// A packet was dropped.
    pub dropped: bool,
    /// The queue was congested.
    pub congested: bool,
    /// The packet belongs to a flow that is watched.
    pub tracked: bool,
    /// The report is of a node before the sink.
    pub intermediate: bool,
    /// The domain of the node that reports; 0 if it does not say.
    pub domain: u16,
    /// The values of the node that reports, without its id.
    pub hop: Hop,
    /// The packet.
    pub inner: Inner<'a>,
}

/// The reports of one group, read one by one.
#[derive(Clone, Debug)]
pub struct Reports<'a> {
    /// The header of the group.
    pub group: Group,
    reader: Reader<'a>,
}

impl<'a> Reports<'a> {
    /// Reads the header of a group from the payload of a UDP packet.
    ///
    /// # Errors
    /// The payload is too short, or has another version.
    pub fn read(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(WHAT, payload);
        let first = reader.u32()?;
        let version = (first >> 28) as u8;
        if version != REPORT_VERSION {
            return Err(Error::Version { what: WHAT, found: version, known: REPORT_VERSION });
        }
        let (hardware, sequence) = ((first >> 22) as u8 & 0x3f, first & 0x3f_ffff);
        let node = reader.u32()?;
        Ok(Self { group: Group { hardware, sequence, node }, reader })
    }
}

impl<'a> Iterator for Reports<'a> {
    type Item = Result<Report<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.rest().is_empty() {
            return None;
        }
        let next = read_report(&mut self.reader);
        if next.is_err() {
            // The begin of the next report is not known.
            self.reader = Reader::new(WHAT, &[]);
        }
        Some(next)
    }
}

fn read_report<'a>(reader: &mut Reader<'a>) -> Result<Report<'a>, Error> {
    let first = reader.u32()?;
    let (kind, inner) = ((first >> 28) as u8, (first >> 24) as u8 & 0xf);
    let (words, metadata_words) = ((first >> 16) as usize & 0xff, (first >> 8) as usize & 0xff);
    let bit = |at: u32| first >> at & 1 == 1;
    let mut inside = Reader::new(WHAT, reader.take(words * 4)?);
    let (domain, hop) = match kind {
        0 => (0, Hop::default()),
        1 => read_main(&mut inside, metadata_words)?,
        other => {
            let why =
                format!("the report has type {other}; this build reads 0 (inner only) and 1 (INT)");
            return Err(Error::malformed(WHAT, why));
        }
    };
    let inner = read_inner(inner, inside.rest())?;
    Ok(Report {
        dropped: bit(7),
        congested: bit(6),
        tracked: bit(5),
        intermediate: bit(4),
        domain,
        hop,
        inner,
    })
}

/// Reads the main contents of type 1: the domain of the node, and its values.
fn read_main(inside: &mut Reader<'_>, metadata_words: usize) -> Result<(u16, Hop), Error> {
    let (bits, domain) = (inside.u16()?, inside.u16()?);
    // Bits of the domain and its status.
    inside.take(4)?;
    let mut metadata = Reader::new(WHAT, inside.take(metadata_words * 4)?);
    let needed = Instructions(bits).words();
    if needed > metadata_words {
        let why =
            format!("the bits of metadata need {needed} words, and its length is {metadata_words}");
        return Err(Error::malformed(WHAT, why));
    }
    // The bit of the node is reserved here; the last bit has another meaning than in a packet.
    let mut hop = Hop::read(&mut metadata, Instructions(bits & !DROP_BIT))?;
    if bits & NODE_BIT != 0 {
        hop.node = None;
    }
    if bits & DROP_BIT != 0 {
        let word = metadata.u32()?;
        hop.queue = hop.queue.or(Some((word >> 24) as u8));
        hop.drop_reason = Some((word >> 16) as u8);
    }
    Ok((domain, hop))
}

/// Returns the packet of the inner contents.
fn read_inner(kind: u8, bytes: &[u8]) -> Result<Inner<'_>, Error> {
    Ok(match kind {
        0 => Inner::None,
        1 => return first_packet(bytes),
        2 => Inner::Other(2),
        3 => Inner::Ethernet(bytes),
        4 | 5 => Inner::Ip(bytes),
        other => {
            let why = format!("the inner type is {other}; a type is between 0 and 5");
            return Err(Error::malformed(WHAT, why));
        }
    })
}

/// Returns the first packet among fields of type, length and value.
fn first_packet(bytes: &[u8]) -> Result<Inner<'_>, Error> {
    let mut reader = Reader::new(WHAT, bytes);
    while !reader.rest().is_empty() {
        let (kind, words) = (reader.u8()? >> 4, reader.u8()?);
        reader.u16()?;
        let value = reader.take(usize::from(words) * 4)?;
        match kind {
            1 => return Ok(Inner::Ethernet(value)),
            2 | 3 => return Ok(Inner::Ip(value)),
            _ => {}
        }
    }
    Ok(Inner::Other(1))
}

/// Appends the header of a group. Sequence and hardware are cut to their bits.
pub fn write_group(group: &Group, out: &mut Vec<u8>) {
    let first = u32::from(REPORT_VERSION) << 28
        | u32::from(group.hardware & 0x3f) << 22
        | (group.sequence & 0x3f_ffff);
    out.extend(first.to_be_bytes());
    out.extend(group.node.to_be_bytes());
}

/// Appends a report of type 1 with the values that `instructions` name. The packet is cut to a whole number of
/// words and to the largest report.
pub fn write_report(report: &Report<'_>, instructions: Instructions, out: &mut Vec<u8>) {
    let mut bits = instructions.0 & !(NODE_BIT | DROP_BIT);
    if report.hop.drop_reason.is_some() {
        bits |= DROP_BIT;
    }
    let metadata_words = Instructions(bits).words();
    let (inner, packet) = match report.inner {
        Inner::None | Inner::Other(_) => (0u8, &[][..]),
        Inner::Ethernet(packet) => (3, packet),
        Inner::Ip(packet) => {
            (if packet.first().is_some_and(|b| b >> 4 == 6) { 5 } else { 4 }, packet)
        }
    };
    let room = 255 - FIXED_WORDS - metadata_words;
    let packet_words = (packet.len() / 4).min(room);
    let words = FIXED_WORDS + metadata_words + packet_words;
    let flag = |set: bool, at: u8| u8::from(set) << at;
    let flags = flag(report.dropped, 7)
        | flag(report.congested, 6)
        | flag(report.tracked, 5)
        | flag(report.intermediate, 4);
    out.extend([1 << 4 | inner, words as u8, metadata_words as u8, flags]);
    out.extend(bits.to_be_bytes());
    out.extend(report.domain.to_be_bytes());
    out.extend([0; 4]);
    report.hop.write(out, Instructions(bits & !DROP_BIT));
    if let Some(reason) = report.hop.drop_reason {
        out.extend([report.hop.queue.unwrap_or(u8::MAX), reason, 0, 0]);
    }
    out.extend(&packet[..packet_words * 4]);
}
