//! A recorder of a test, and what it wrote.

use std::collections::HashMap;
use std::path::Path;

use skopos_rpc::file::Definition;
use skopos_rpc::host::tonic::options;
use skopos_rpc::record::SpanRecord;
use skopos_rpc::{Frame, Frames, Interval, Kind, Record, Recorder};
use tempfile::TempDir;

/// A recorder with a trace of its own.
pub(crate) struct Recorded {
    pub(crate) recorder: Recorder,
    pub(crate) folder: TempDir,
}

/// One side of a call, as the trace has it.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    /// Name of the service that recorded it.
    pub(crate) process: String,
    pub(crate) name: String,
    pub(crate) hash: u64,
    pub(crate) record: SpanRecord,
    pub(crate) values: HashMap<String, u64>,
}

impl Recorded {
    pub(crate) fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let run = folder.path().join("run");
        let settings = options(name).trace_folder(folder.path()).dir(run);
        Self { recorder: Recorder::start(settings).expect("a recorder"), folder }
    }

    /// Reads the traces while the recorder goes on.
    pub(crate) fn sides_so_far(&self) -> Vec<Side> {
        self.recorder.flush().expect("flushed");
        read_folder(self.folder.path())
    }

    /// Ends the recorder and reads all traces of its folder.
    pub(crate) fn sides(self) -> Vec<Side> {
        self.recorder.close().expect("closed");
        read_folder(self.folder.path())
    }
}

/// Reads all traces of a folder. Spans are in the order of their records.
pub(crate) fn read_folder(folder: &Path) -> Vec<Side> {
    let entries = std::fs::read_dir(folder).expect("the folder").flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "sktrace"));
    paths.sort();
    paths.iter().flat_map(|path| read(path)).collect()
}

fn read(path: &Path) -> Vec<Side> {
    let mut frames = Frames::open(path).expect("a trace");
    let process = frames.process().name.clone();
    let (mut nodes, mut pvars, mut found) = (HashMap::new(), HashMap::new(), Vec::new());
    while let Some(frame) = frames.next_frame().expect("readable") {
        match frame {
            Frame::Definition(Definition::Node(node)) => {
                nodes.insert(node.id, (node.name, node.hash));
            }
            Frame::Definition(Definition::Pvar(info)) => {
                pvars.insert(info.number, info.name);
            }
            Frame::Records(records) => {
                for record in records.iter().flatten() {
                    match record {
                        Record::Span(span) => found.push((span, Vec::new())),
                        Record::Details(values) => {
                            found.last_mut().expect("details follow a span").1.extend(values);
                        }
                        Record::Sample(_) => {}
                    }
                }
            }
            _ => {}
        }
    }
    assert_eq!(frames.tear(), None, "{}", path.display());
    let side = |(record, values): (SpanRecord, Vec<skopos_rpc::record::Tagged>)| {
        let name = |value: &skopos_rpc::record::Tagged| {
            let of_pvar = |number| pvars.get(&number).cloned();
            value.interval().map(|i| i.name().to_owned()).or(value.pvar().and_then(of_pvar))
        };
        let values = values.iter().filter_map(|v| Some((name(v)?, v.value()))).collect();
        let (name, hash) = nodes.get(&record.node).cloned().expect("the node is defined");
        Side { process: process.clone(), name, hash, record, values }
    };
    found.into_iter().map(side).collect()
}

impl Side {
    pub(crate) fn interval(&self, interval: Interval) -> u64 {
        let value = self.values.get(interval.name());
        *value.unwrap_or_else(|| panic!("{interval:?} is in {:?}", self.values))
    }
}

/// Returns the only side of that kind and name.
pub(crate) fn only(sides: &[Side], kind: Kind, name: &str) -> Side {
    let mut found = sides.iter().filter(|s| s.record.kind == kind && s.name == name);
    let first = found.next().unwrap_or_else(|| panic!("{kind:?} {name} is in {sides:#?}"));
    assert_eq!(found.count(), 0, "one {kind:?} {name}");
    first.clone()
}

/// Checks that two sides belong to one call.
pub(crate) fn check_joined(origin: &Side, target: &Side) {
    assert_eq!(origin.record.request_low, target.record.request_low);
    assert_eq!(origin.record.request_high, target.record.request_high);
    assert_eq!(origin.record.span, target.record.span);
    assert_eq!(origin.hash, target.hash, "the callpath");
    assert!(origin.record.lamport > 0 && target.record.lamport > 0);
}
