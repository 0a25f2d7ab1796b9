//! A view of the traces of a case, for its own checks: spans with their values by name. `skopos trace` has the analysis.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use skopos_rpc::file::{ClockPoint, Definition};
use skopos_rpc::{Frame, Frames, Interval, Kind, Record, SpanRecord};

use crate::error::{Error, Result};

/// One side of a call.
#[derive(Clone, Debug)]
pub struct Side {
    /// Name of the process.
    pub process: String,
    /// Name of the RPC.
    pub rpc: String,
    /// The record.
    pub span: SpanRecord,
    /// Duration in seconds.
    pub seconds: f64,
    /// Tags and values of its details.
    values: Vec<(u16, u64)>,
}

/// The traces of a folder.
#[derive(Debug, Default)]
pub struct View {
    /// All sides of calls.
    pub sides: Vec<Side>,
    /// Records that were overwritten before they were written to a trace.
    pub lost: u64,
    /// Tags of variables: all processes of this service register the same ones in the same order.
    tags: HashMap<String, u16>,
}

impl View {
    /// Reads all traces of a folder into memory: for cases, which have thousands of calls.
    ///
    /// # Errors
    /// The folder or a trace cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut view = Self::default();
        for path in traces(folder)? {
            view.add(&path).map_err(Error::Recorder)?;
        }
        Ok(view)
    }

    fn add(&mut self, path: &Path) -> Result<(), skopos_rpc::Error> {
        let mut frames = Frames::open(path)?;
        let process = frames.process().name.clone();
        let mut names: HashMap<u32, String> = HashMap::new();
        let first = self.sides.len();
        let mut clock: Option<ClockPoint> = None;
        while let Some(frame) = frames.next_frame()? {
            match frame {
                Frame::Definition(Definition::Node(node)) => {
                    names.insert(node.id, node.name);
                }
                Frame::Definition(Definition::Pvar(info)) => {
                    let tag = skopos_rpc::record::FIRST_PVAR_TAG.saturating_add(info.number);
                    self.tags.insert(info.name, tag);
                }
                Frame::Records(records) => {
                    self.lost += records.lost_before;
                    let before = self.sides.len();
                    self.sides_of(&process, records.iter());
                    for side in &mut self.sides[before..] {
                        let ns = clock.map_or(0, |clock| clock.duration_ns(side.span.duration));
                        side.seconds = ns as f64 / 1e9;
                    }
                }
                Frame::Clock(point) => clock = Some(point),
                _ => {}
            }
        }
        for side in &mut self.sides[first..] {
            side.rpc = names.get(&side.span.node).cloned().unwrap_or_default();
        }
        Ok(())
    }

    fn sides_of(&mut self, process: &str, records: impl Iterator<Item = Option<Record>>) {
        for record in records.flatten() {
            match record {
                Record::Span(span) if matches!(span.kind, Kind::Origin | Kind::Target) => {
                    let (process, rpc) = (process.to_owned(), String::new());
                    self.sides.push(Side { process, rpc, span, seconds: 0.0, values: Vec::new() });
                }
                Record::Details(values) => {
                    if let Some(side) = self.sides.last_mut() {
                        let set = values.iter().filter(|value| value.tag() != 0);
                        side.values.extend(set.map(|value| (value.tag(), value.value())));
                    }
                }
                _ => {}
            }
        }
    }

    /// The sides of one kind of an RPC.
    pub fn of<'a>(&'a self, kind: Kind, rpc: &'a str) -> impl Iterator<Item = &'a Side> {
        self.sides.iter().filter(move |side| side.span.kind == kind && side.rpc == rpc)
    }

    /// A variable of a side.
    #[must_use]
    pub fn pvar(&self, side: &Side, name: &str) -> Option<u64> {
        side.tagged(*self.tags.get(name)?)
    }

    /// The sum of the durations of all calls of an RPC, as their origins see them, in seconds.
    #[must_use]
    pub fn duration_seconds(&self, rpc: &str) -> f64 {
        self.of(Kind::Origin, rpc).map(|side| side.seconds).sum()
    }

    /// The sum of an interval over both sides of all calls of an RPC, in seconds.
    #[must_use]
    pub fn interval_seconds(&self, rpc: &str, interval: Interval) -> f64 {
        let sides = self.sides.iter().filter(|side| side.rpc == rpc);
        let sum: u64 = sides.filter_map(|side| side.interval(interval)).sum();
        sum as f64 / 1e9
    }

    /// The sum of a variable over all targets of an RPC, in its own unit.
    #[must_use]
    pub fn pvar_sum(&self, rpc: &str, name: &str) -> u64 {
        self.of(Kind::Target, rpc).filter_map(|side| self.pvar(side, name)).sum()
    }
}

/// Paths of all traces in a folder, in the order of their names.
///
/// # Errors
/// The folder cannot be read.
pub fn traces(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |source| Error::Path {
        path: folder.to_owned(),
        doing: "read the folder of traces",
        source,
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == skopos_rpc::file::TRACE_ENDING) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

impl Side {
    /// An interval in nanoseconds.
    #[must_use]
    pub fn interval(&self, interval: Interval) -> Option<u64> {
        self.tagged(interval.tag())
    }

    fn tagged(&self, tag: u16) -> Option<u64> {
        self.values.iter().find(|(known, _)| *known == tag).map(|(_, value)| *value)
    }
}
