//! The option as bytes.

use crate::Error;
use crate::bytes::Reader;

/// The most bytes of node data: the length of an option is a byte, and its two headers take 10.
pub const MAX_TRACE_BYTES: usize = 244;

const WHAT: &str = "an IOAM trace";

/// The option, and the kind of a pre-allocated trace (RFC 9486, section 3).
const OPTION: u8 = 49;
const PREALLOCATED: u8 = 0;
/// Options that fill: one byte, and any number of bytes.
const PAD1: u8 = 0;
const PADN: u8 = 1;

/// Bits of the trace type that have one word, and bits that have two (RFC 9197, section 4.4.1).
const ONE_WORD: u32 = 0xff_1000;
const TWO_WORDS: u32 = 0x00_e000;

/// The values that nodes write: hop limit and node, interfaces, seconds, fractions, data of the namespace, queue.
const VALUES: u32 = 1 << 23 | 1 << 22 | 1 << 21 | 1 << 20 | 1 << 18 | 1 << 17;

/// The room that a sender gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// The namespace, which nodes must be configured for.
    pub namespace: u16,
    /// The most nodes that can write.
    pub nodes: u8,
}

impl TraceRequest {
    /// Returns the hop-by-hop options header with room for the nodes. The kernel fills in the next header.
    ///
    /// # Errors
    /// The nodes need more than [`MAX_TRACE_BYTES`]: with six words each, ten fit.
    pub fn options_header(&self) -> Result<Vec<u8>, Error> {
        let node_words = VALUES.count_ones() as usize;
        let words = node_words * usize::from(self.nodes);
        if self.nodes == 0 || words * 4 > MAX_TRACE_BYTES {
            let most = MAX_TRACE_BYTES / 4 / node_words;
            let why = format!("{} nodes; a trace has 1 to {most}", self.nodes);
            return Err(Error::malformed(WHAT, why));
        }
        // Next header, length, and two bytes that align the option.
        let mut header = vec![0, 0, PADN, 0];
        header.extend([OPTION, (10 + words * 4) as u8, 0, PREALLOCATED]);
        header.extend(self.namespace.to_be_bytes());
        let lengths = (node_words as u16) << 11 | words as u16;
        header.extend(lengths.to_be_bytes());
        header.extend((VALUES << 8).to_be_bytes());
        header.resize(header.len() + words * 4, 0);
        if !header.len().is_multiple_of(8) {
            header.extend([PADN, 2, 0, 0]);
        }
        header[1] = (header.len() / 8 - 1) as u8;
        Ok(header)
    }
}

/// The values of a node. A value is absent if the node did not know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoamNode {
    /// The hop limit of the packet at the node.
    pub hop_limit: Option<u8>,
    /// Id of the node (`net.ipv6.ioam6_id`).
    pub node: Option<u32>,
    /// Ingress interface (`net.ipv6.conf.IFACE.ioam6_id`).
    pub ingress: Option<u16>,
    /// Egress interface.
    pub egress: Option<u16>,
    /// Seconds of the time at which the packet passed, since 1970.
    pub seconds: Option<u32>,
    /// Microseconds of that time.
    pub microseconds: Option<u32>,
    /// Data of the namespace at the node: the anomaly code of a host.
    pub data: Option<u32>,
    /// Bytes in the queue of the egress interface.
    pub queue_bytes: Option<u32>,
}

/// A trace that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The namespace.
    pub namespace: u16,
    /// A node could not write because there was no room.
    pub overflow: bool,
    /// The nodes in the order of the path.
    pub nodes: Vec<IoamNode>,
}

/// Returns the trace of a hop-by-hop options header; `None` if it has no trace.
///
/// # Errors
/// The header ends before its options, or the lengths of the trace contradict each other.
pub fn trace_of(header: &[u8]) -> Result<Option<Trace>, Error> {
    let mut reader = Reader::new(WHAT, header);
    reader.u8()?;
    let bytes = (usize::from(reader.u8()?) + 1) * 8 - 2;
    let mut options = Reader::new(WHAT, reader.take(bytes)?);
    while !options.rest().is_empty() {
        let kind = options.u8()?;
        if kind == PAD1 {
            continue;
        }
        let length = usize::from(options.u8()?);
        let content = options.take(length)?;
        if kind == OPTION {
            return read_trace(content);
        }
    }
    Ok(None)
}

fn read_trace(content: &[u8]) -> Result<Option<Trace>, Error> {
    let mut reader = Reader::new(WHAT, content);
    reader.u8()?;
    if reader.u8()? != PREALLOCATED {
        return Ok(None);
    }
    let (namespace, lengths) = (reader.u16()?, reader.u16()?);
    let values = reader.u32()? >> 8;
    let (node_words, remaining) = (usize::from(lengths >> 11), usize::from(lengths & 0x7f));
    reader.take(remaining * 4)?;
    let fixed = (values & ONE_WORD).count_ones() + 2 * (values & TWO_WORDS).count_ones();
    let known = ONE_WORD | TWO_WORDS;
    if values & !known != 0 || node_words != fixed as usize || node_words == 0 {
        let why = format!("the values {values:#08x} do not take {node_words} words");
        return Err(Error::malformed(WHAT, why));
    }
    let written = reader.rest();
    if !written.len().is_multiple_of(node_words * 4) {
        let why = format!(
            "{} bytes are not a whole number of nodes of {node_words} words",
            written.len()
        );
        return Err(Error::malformed(WHAT, why));
    }
    let nodes: Result<Vec<_>, _> =
        written.chunks_exact(node_words * 4).rev().map(|node| read_node(node, values)).collect();
    Ok(Some(Trace { namespace, overflow: lengths & 0x400 != 0, nodes: nodes? }))
}

fn read_node(bytes: &[u8], values: u32) -> Result<IoamNode, Error> {
    let mut reader = Reader::new(WHAT, bytes);
    let mut node = IoamNode::default();
    for bit in (0..24u32).filter(|bit| values & (0x80_0000 >> bit) != 0) {
        if TWO_WORDS & (0x80_0000 >> bit) != 0 {
            reader.u64()?;
            continue;
        }
        let word = reader.u32()?;
        let known = (word != u32::MAX).then_some(word);
        match bit {
            0 => {
                node.hop_limit = known.map(|word| (word >> 24) as u8);
                node.node = Some(word & 0xff_ffff).filter(|id| *id != 0xff_ffff);
            }
            1 => {
                node.ingress = Some((word >> 16) as u16).filter(|id| *id != u16::MAX);
                node.egress = Some(word as u16).filter(|id| *id != u16::MAX);
            }
            2 => node.seconds = known,
            3 => node.microseconds = known,
            5 => node.data = known,
            6 => node.queue_bytes = known,
            _ => {}
        }
    }
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_for_nodes_is_a_whole_header() {
        for nodes in 1..=10 {
            let header = TraceRequest { namespace: 7, nodes }.options_header().expect("fits");
            assert_eq!(header.len() % 8, 0, "{nodes}");
            assert_eq!(header.len(), (usize::from(header[1]) + 1) * 8);
            let trace = trace_of(&header).expect("good").expect("a trace");
            assert_eq!(trace, Trace { namespace: 7, overflow: false, nodes: Vec::new() });
        }
        assert!(TraceRequest { namespace: 7, nodes: 11 }.options_header().is_err());
        assert!(TraceRequest { namespace: 7, nodes: 0 }.options_header().is_err());
    }

    /// A trace as RFC 9197 shows it: two of two places are filled, the last node first.
    fn filled() -> Vec<u8> {
        let mut header = TraceRequest { namespace: 7, nodes: 2 }.options_header().expect("fits");
        header[10..12].copy_from_slice(&(6u16 << 11).to_be_bytes());
        for (at, word) in (16..).step_by(4).zip([
            0x3e00_0002,
            0x0005_ffff,
            1000,
            20,
            0xbad,
            0xffff_ffff,
            0x3f00_0001,
            0x0003_0004,
            1000,
            10,
            1,
            1500u32,
        ]) {
            header[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        header
    }

    #[test]
    fn nodes_are_read_in_the_order_of_the_path() {
        let trace = trace_of(&filled()).expect("good").expect("a trace");
        let first = IoamNode {
            hop_limit: Some(0x3f),
            node: Some(1),
            ingress: Some(3),
            egress: Some(4),
            seconds: Some(1000),
            microseconds: Some(10),
            data: Some(1),
            queue_bytes: Some(1500),
        };
        assert_eq!(trace.nodes[0], first);
        let second = trace.nodes[1];
        assert_eq!((second.node, second.egress, second.queue_bytes), (Some(2), None, None));
        assert_eq!((second.data, trace.nodes.len()), (Some(0xbad), 2));
    }

    #[test]
    fn lengths_that_lie_are_errors() {
        let check = |at: usize, byte: u8, expected: &str| {
            let mut header = filled();
            header[at] = byte;
            let why = trace_of(&header).expect_err(expected).to_string();
            assert!(why.contains(expected), "{why}");
        };
        check(1, 200, "are left");
        check(5, 255, "are left");
        check(5, 9, "are left");
        check(5, 50, "not a whole number of nodes");
        check(10, 7 << 3, "do not take 7 words");
        check(11, 127, "are left");
        check(12, 0, "do not take 6 words");
        check(14, 1, "do not take 6 words");
        for end in 0..filled().len() {
            assert!(trace_of(&filled()[..end]).is_err(), "{end}");
        }
    }
}
