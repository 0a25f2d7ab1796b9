//! Reads packets. Every length is compared with the rest of the packet before it is used.

use skopos_model::Timestamp;

use super::key::{NodeKey, TAG_BYTES};
use super::limits::{MAX_ID, MAX_NAME_BYTES, MAX_PACKET_BYTES};
use super::number::{decimal, varint};
use super::packet::{
    Entry, HAS_NAMES, HEADER_BYTES, Header, MAGIC, Name, Packet, Severity, VERSION,
};
use crate::Error;
use crate::bytes::Reader;

const WHAT: &str = "an anomaly report";

/// A packet with a well-formed header, of which nothing is verified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unverified<'a> {
    pub(super) header: Header,
    has_names: bool,
    bits: u32,
    body: &'a [u8],
    tagged: &'a [u8],
    tag: &'a [u8],
}

impl<'a> Unverified<'a> {
    /// Reads the header, and finds the tag.
    ///
    /// # Errors
    /// The bytes are not a packet of this version, or their length is not that of the header.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.len() > MAX_PACKET_BYTES {
            let why = format!("it has {} bytes; at most {MAX_PACKET_BYTES} are sent", bytes.len());
            return Err(Error::malformed(WHAT, why));
        }
        let mut reader = Reader::new(WHAT, bytes);
        let magic = reader.u16()?;
        if magic != MAGIC {
            return Err(Error::malformed(
                WHAT,
                format!("it begins with {magic:#06x}, not {MAGIC:#06x}"),
            ));
        }
        let (version, flags) = (reader.u8()?, reader.u8()?);
        if version != VERSION {
            return Err(Error::Version { what: WHAT, found: version, known: VERSION });
        }
        if flags & !HAS_NAMES != 0 {
            return Err(Error::malformed(WHAT, format!("its flags {flags:#04x} are not known")));
        }
        let header = Header {
            node: reader.u64()?,
            session: reader.u64()?,
            sequence: reader.u32()?,
            at: Timestamp::from_nanos(reader.u64()? as i64),
        };
        let (length, bits) = (usize::from(reader.u16()?), u32::from(reader.u16()?));
        let body = reader.take(length)?;
        let tag = reader.take(TAG_BYTES)?;
        if !reader.rest().is_empty() {
            let why = format!("{} bytes follow its tag", reader.rest().len());
            return Err(Error::malformed(WHAT, why));
        }
        if bits > MAX_ID + 1 {
            return Err(Error::malformed(
                WHAT,
                format!("its bitmap has {bits} bits, over {}", MAX_ID + 1),
            ));
        }
        let tagged = &bytes[..HEADER_BYTES + length];
        Ok(Self { header, has_names: flags & HAS_NAMES != 0, bits, body, tagged, tag })
    }

    pub(super) fn is_of(&self, key: &NodeKey) -> bool {
        key.verifies(self.tagged, self.tag)
    }

    /// Reads the body.
    ///
    /// # Errors
    /// The body contradicts itself or ends too soon.
    pub(super) fn packet(&self) -> Result<Packet, Error> {
        let mut reader = Reader::new("the body of an anomaly report", self.body);
        let held = varint(&mut reader)?;
        let names = if self.has_names { read_names(&mut reader)? } else { Vec::new() };
        let mut entries = read_bitmap(&mut reader, self.bits)?;
        read_severities(&mut reader, &mut entries)?;
        for entry in &mut entries {
            entry.seen = decimal(&mut reader)?;
            if entry.severity != Severity::Usual {
                (entry.low, entry.high) = (decimal(&mut reader)?, decimal(&mut reader)?);
            }
            entry.age_tenths = varint(&mut reader)?;
        }
        if !reader.rest().is_empty() {
            let why = format!("{} bytes follow its last finding", reader.rest().len());
            return Err(Error::malformed(WHAT, why));
        }
        Ok(Packet { header: self.header, held, names, entries })
    }
}

impl Packet {
    /// Reads a packet and verifies its tag.
    ///
    /// # Errors
    /// The bytes are not a packet, or its tag is not one of `key`.
    pub fn decode(bytes: &[u8], key: &NodeKey) -> Result<Self, Error> {
        let unverified = Unverified::read(bytes)?;
        if !unverified.is_of(key) {
            return Err(Error::malformed(WHAT, "its tag was not made with the key of its node"));
        }
        unverified.packet()
    }

    /// Reads a packet without verifying its tag: for programs that show packets, and for fuzzing.
    ///
    /// # Errors
    /// The bytes are not a packet.
    pub fn decode_unverified(bytes: &[u8]) -> Result<Self, Error> {
        Unverified::read(bytes)?.packet()
    }
}

fn read_names(reader: &mut Reader<'_>) -> Result<Vec<Name>, Error> {
    let count = varint(reader)?;
    let mut names: Vec<Name> = Vec::new();
    for at in 0..count {
        let distance = varint(reader)?;
        let last = names.last().map_or(0, |name| name.id);
        let id = u64::from(last).saturating_add(distance);
        if id > MAX_ID.into() || at > 0 && distance == 0 {
            return Err(Error::malformed(
                WHAT,
                format!("the id {id} of a name; ids ascend to {MAX_ID}"),
            ));
        }
        let (shared, length) = (usize::from(reader.u8()?), usize::from(reader.u8()?));
        let before = names.last().map_or(&[][..], |name| name.name.as_bytes());
        let shared = before.get(..shared).ok_or_else(|| {
            let why =
                format!("a name has {shared} bytes of the name before, which has {}", before.len());
            Error::malformed(WHAT, why)
        })?;
        let bytes = [shared, reader.take(length)?].concat();
        if bytes.is_empty() || bytes.len() > MAX_NAME_BYTES {
            let why =
                format!("a name has {} bytes; 1 to {MAX_NAME_BYTES} are allowed", bytes.len());
            return Err(Error::malformed(WHAT, why));
        }
        let name = String::from_utf8(bytes)
            .map_err(|_| Error::malformed(WHAT, format!("the name of id {id} is not UTF-8")))?;
        names.push(Name { id: id as u32, name });
    }
    Ok(names)
}

/// Reads the ids of the findings.
fn read_bitmap(reader: &mut Reader<'_>, bits: u32) -> Result<Vec<Entry>, Error> {
    let runs = varint(reader)?;
    let mut entries = Vec::new();
    let mut next = 0_u64;
    for at in 0..runs {
        let (gap, length) = (varint(reader)?, varint(reader)?);
        let first = next.saturating_add(gap);
        next = first.saturating_add(length);
        // Each finding has three bytes at least, so a bitmap cannot promise more than follow.
        let promised = (entries.len() as u64).saturating_add(length).saturating_mul(3);
        if length == 0
            || at > 0 && gap == 0
            || next > bits.into()
            || promised > reader.rest().len() as u64
        {
            let why = format!(
                "a run of {length} findings after {gap} ids, with {bits} bits and {} bytes left",
                reader.rest().len()
            );
            return Err(Error::malformed(WHAT, why));
        }
        if first == 0 {
            return Err(Error::malformed(WHAT, "a finding has the id 0, which is the node"));
        }
        entries.extend((first..next).map(|id| Entry {
            id: id as u32,
            severity: Severity::Usual,
            seen: 0.0,
            low: 0.0,
            high: 0.0,
            age_tenths: 0,
        }));
    }
    Ok(entries)
}

fn read_severities(reader: &mut Reader<'_>, entries: &mut [Entry]) -> Result<(), Error> {
    let mut rest = entries;
    while !rest.is_empty() {
        let (length, number) = (varint(reader)?, reader.u8()?);
        let severity = Severity::ALL.get(usize::from(number)).copied();
        let length = usize::try_from(length).ok().filter(|n| (1..=rest.len()).contains(n));
        let (Some(severity), Some(length)) = (severity, length) else {
            return Err(Error::malformed(
                WHAT,
                format!("a run of severities, of severity {number}, is empty, unknown or too long"),
            ));
        };
        let (run, after) = rest.split_at_mut(length);
        run.iter_mut().for_each(|entry| entry.severity = severity);
        rest = after;
    }
    Ok(())
}
