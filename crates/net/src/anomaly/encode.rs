//! Writes packets.

use super::key::NodeKey;
use super::number::{put_decimal, put_varint};
use super::packet::{HAS_NAMES, HEADER_BYTES, MAGIC, Packet, Severity, VERSION};

impl Packet {
    /// Replaces the content of `into` by the packet, with the tag of `key`. Names and entries must be ascending by id, and
    /// ids at most [`MAX_ID`](super::limits::MAX_ID). The caller keeps packets within
    /// [`MAX_PACKET_BYTES`](super::MAX_PACKET_BYTES); a receiver refuses longer ones.
    pub fn encode(&self, key: &NodeKey, into: &mut Vec<u8>) {
        let bits = self.entries.last().map_or(0, |last| last.id + 1);
        let flags = if self.names.is_empty() { 0 } else { HAS_NAMES };
        into.clear();
        into.extend_from_slice(&MAGIC.to_be_bytes());
        into.extend_from_slice(&[VERSION, flags]);
        into.extend_from_slice(&self.header.node.to_be_bytes());
        into.extend_from_slice(&self.header.session.to_be_bytes());
        into.extend_from_slice(&self.header.sequence.to_be_bytes());
        into.extend_from_slice(&self.header.at.as_nanos().to_be_bytes());
        into.extend_from_slice(&[0, 0]);
        into.extend_from_slice(&(bits as u16).to_be_bytes());
        put_varint(into, self.held);
        self.put_names(into);
        self.put_bitmap(into);
        self.put_severities(into);
        self.put_numbers(into);
        let length = (into.len() - HEADER_BYTES) as u16;
        into[HEADER_BYTES - 4..HEADER_BYTES - 2].copy_from_slice(&length.to_be_bytes());
        let tag = key.tag(into);
        into.extend_from_slice(&tag);
    }

    /// Writes the number of names, and for each its distance from the id before, the length of the begin that it has in
    /// common with the name before, and the rest.
    fn put_names(&self, into: &mut Vec<u8>) {
        if self.names.is_empty() {
            return;
        }
        put_varint(into, self.names.len() as u64);
        let (mut last, mut before) = (0, "");
        for name in &self.names {
            put_varint(into, (name.id - last).into());
            let (text, known) = (name.name.as_bytes(), before.as_bytes());
            let shared = text.iter().zip(known).take_while(|(a, b)| a == b).count();
            let shared = shared.min(u8::MAX.into());
            into.push(shared as u8);
            into.push((text.len() - shared) as u8);
            into.extend_from_slice(&text[shared..]);
            (last, before) = (name.id, &name.name);
        }
    }

    /// Writes the number of runs of present ids, and for each the absent ids before it and its length.
    fn put_bitmap(&self, into: &mut Vec<u8>) {
        let ids = || self.entries.iter().map(|entry| entry.id);
        let starts = ids().zip(ids().skip(1)).filter(|(a, b)| a + 1 != *b).count();
        let runs = if self.entries.is_empty() { 0 } else { starts + 1 };
        put_varint(into, runs as u64);
        let mut next = 0;
        let mut ids = ids().peekable();
        while let Some(first) = ids.next() {
            let mut end = first + 1;
            while ids.next_if_eq(&end).is_some() {
                end += 1;
            }
            put_varint(into, (first - next).into());
            put_varint(into, (end - first).into());
            next = end;
        }
    }

    /// Writes runs of equal severities: the length, and the severity.
    fn put_severities(&self, into: &mut Vec<u8>) {
        for run in self.entries.chunk_by(|a, b| a.severity == b.severity) {
            put_varint(into, run.len() as u64);
            into.push(run[0].severity as u8);
        }
    }

    fn put_numbers(&self, into: &mut Vec<u8>) {
        for entry in &self.entries {
            put_decimal(into, entry.seen);
            if entry.severity != Severity::Usual {
                put_decimal(into, entry.low);
                put_decimal(into, entry.high);
            }
            put_varint(into, entry.age_tenths);
        }
    }
}
