//! The bytes of a trace file in memory.

use std::collections::HashMap;

use crate::callpath::{child, name_hash};
use crate::file::{Definition, FRAME_MAGIC, Node, Process, TRACE_VERSION, kind};
use crate::interval::Interval;
use crate::record::{DETAILS_VALUES, SpanRecord, Tagged, details_words, words_to_bytes};

use super::EPOCH_NS;

/// Records of a frame, as many as a recorder drains at once.
const FRAME_RECORDS: usize = 8192;

/// One trace file.
pub(super) struct TraceBytes {
    name: String,
    bytes: Vec<u8>,
    records: Vec<u8>,
    nodes: HashMap<u64, u32>,
}

fn frame(bytes: &mut Vec<u8>, kind: u32, payload: &[u8]) {
    let (kind, length) = (kind.to_le_bytes(), (payload.len() as u32).to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    [&kind, &length, payload].iter().for_each(|part| sum.update(part));
    bytes.extend_from_slice(&FRAME_MAGIC);
    bytes.extend_from_slice(&kind);
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&sum.finalize().to_le_bytes());
    bytes.extend_from_slice(payload);
}

impl TraceBytes {
    /// Begins the file of a process whose clock is `skew_ns` ahead.
    pub(super) fn new(name: &str, pid: u32, node: &str, skew_ns: i64) -> Self {
        let process = Process {
            version: TRACE_VERSION,
            name: name.to_owned(),
            pid,
            node: node.to_owned(),
            boot_id: format!("boot of {node}"),
            config: [("execution_streams".to_owned(), "4".to_owned())].into(),
            ..Process::default()
        };
        let mut bytes = Vec::new();
        // A map of strings and numbers has a JSON.
        let json = serde_json::to_vec(&process).unwrap_or_default();
        frame(&mut bytes, kind::PROCESS, &json);
        let clock = [
            0_u64.to_le_bytes(),
            (EPOCH_NS + skew_ns).to_le_bytes(),
            1.0_f64.to_bits().to_le_bytes(),
            100_u64.to_le_bytes(),
        ];
        frame(&mut bytes, kind::CLOCK, clock.as_flattened());
        let file = format!("{name}-{pid}-0.sktrace");
        Self { name: file, bytes, records: Vec::new(), nodes: HashMap::new() }
    }

    /// Adds a record of a call by the hash of its caller and its name.
    pub(super) fn add(
        &mut self,
        mut record: SpanRecord,
        (above, name): (u64, &str),
        intervals: &[(Interval, u64)],
    ) {
        let hash = child(above, name_hash(name));
        let next = self.nodes.len() as u32 + 1;
        record.node = match self.nodes.get(&hash) {
            Some(node) => *node,
            None => {
                let name = name.to_owned();
                let node = Node { id: next, parent_hash: above, hash, name };
                let (kind, payload) = Definition::Node(node).encode();
                frame(&mut self.bytes, kind, &payload);
                self.nodes.insert(hash, next);
                next
            }
        };
        record.details = intervals.len().div_ceil(DETAILS_VALUES) as u16;
        self.records.extend_from_slice(&words_to_bytes(&record.words()));
        for part in intervals.chunks(DETAILS_VALUES) {
            let mut values = [Tagged::default(); DETAILS_VALUES];
            for (place, (interval, ns)) in values.iter_mut().zip(part) {
                *place = Tagged::new(interval.tag(), *ns);
            }
            self.records.extend_from_slice(&words_to_bytes(&details_words(&values)));
        }
        if self.records.len() >= FRAME_RECORDS * 64 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let mut payload = 0_u32.to_le_bytes().to_vec();
        payload.extend_from_slice(&0_u64.to_le_bytes());
        payload.append(&mut self.records);
        frame(&mut self.bytes, kind::RECORDS, &payload);
    }

    /// Ends the file.
    pub(super) fn end(mut self) -> (String, Vec<u8>) {
        self.flush();
        frame(&mut self.bytes, kind::END, &[1]);
        (self.name, self.bytes)
    }
}
