//! The live segments of this machine as a source of the query engine.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use skopos_model::{Timestamp, Topic, unpoisoned};
use skopos_query::{Described, Node, Row, Source, Wanted};
use skopos_score::insight::DEFINITIONS;
use skopos_shm::{Host, Segment, SegmentVersions, Vertex, now};
use skopos_store::history::{self, Folder, Part};

use crate::tables::InsightInfo;
use skopos_agent::HUB_FACTS_NAME;
use skopos_agent::folder_of;
use skopos_term::state;

/// How often to look for publishers and topics that came or went.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is published on this machine.
#[derive(Debug)]
pub struct Local {
    state: RwLock<State>,
    /// Where the archive of tasks is, or would be.
    archive: Option<PathBuf>,
}

#[derive(Debug)]
struct State {
    host: Host,
    /// Of the segments when their vertices were looked up.
    versions: SegmentVersions,
    /// By topic, of the oldest segment that has it.
    vertices: BTreeMap<Box<str>, Vertex>,
    /// The first segments of topics, but for those that a hub counts.
    nodes: BTreeSet<Box<str>>,
    looked_at: Instant,
    /// Vertices that tell where history is.
    tellers: Vec<Vertex>,
    /// History that was told of, and that which was typed.
    folders: BTreeMap<PathBuf, Arc<Folder>>,
}

impl Local {
    pub fn new(host: Host) -> Self {
        let (versions, vertices) = (SegmentVersions::default(), BTreeMap::new());
        let (nodes, looked_at) = (BTreeSet::new(), Instant::now());
        let (tellers, folders) = (Vec::new(), BTreeMap::new());
        let mut state = State { host, versions, vertices, nodes, looked_at, tellers, folders };
        state.learn();
        Self { state: RwLock::new(state), archive: state::archive() }
    }

    /// With this archive of tasks, and not the usual one.
    pub fn with_archive(self, file: PathBuf) -> Self {
        Self { archive: Some(file), ..self }
    }

    /// With the history in this folder, whoever keeps it.
    pub fn with_history(self, folder: PathBuf) -> Self {
        unpoisoned(self.state.write()).add(folder);
        self
    }

    /// Where the archive of tasks is, or would be.
    pub fn archive_file(&self) -> Option<&Path> {
        self.archive.as_deref()
    }

    fn folders(&self) -> Vec<Arc<Folder>> {
        self.look();
        let state = unpoisoned(self.state.read());
        state.folders.values().cloned().collect()
    }

    /// Whether this is a node of this machine. What a hub counts makes none: it has the host's name where
    /// nothing else has a node's, and the node of that name may be told of by others.
    pub fn has_node(&self, name: &str) -> bool {
        unpoisoned(self.state.read()).nodes.contains(name)
    }

    /// Shows the vertices that are wanted.
    fn visit(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Vertex)) {
        self.look();
        let state = unpoisoned(self.state.read());
        match wanted {
            Wanted::All => state.vertices.values().for_each(visit),
            Wanted::These(topics) => {
                topics
                    .iter()
                    .filter_map(|topic| state.vertices.get(topic.as_str()))
                    .for_each(visit);
            }
            // A text may begin with another one of them.
            Wanted::Starting(starts) => {
                let wanted = state.vertices.iter().filter(|(topic, _)| {
                    starts.iter().any(|start| topic.starts_with(start.as_str()))
                });
                wanted.map(|(_, vertex)| vertex).for_each(visit);
            }
        }
    }

    fn look(&self) {
        let is_due = |state: &State| state.looked_at.elapsed() >= LOOK_EVERY;
        if is_due(&*unpoisoned(self.state.read())) {
            let mut state = unpoisoned(self.state.write());
            if is_due(&state) {
                state.looked_at = Instant::now();
                // What cannot be listed now stays as it was.
                let _ = state.host.refresh();
                state.learn();
            }
        }
    }
}

impl State {
    fn learn(&mut self) {
        let Some(versions) = self.host.changes(&self.versions) else {
            self.learn_folders();
            return;
        };
        self.versions = versions;
        self.vertices.clear();
        self.nodes.clear();
        self.tellers.clear();
        for vertex in self.host.segments().iter().flat_map(Segment::vertices) {
            if folder_of(&vertex).is_some() {
                self.tellers.push(vertex.clone());
            }
            let topic = Box::from(vertex.topic().as_str());
            if vertex.segment().name() != HUB_FACTS_NAME {
                self.nodes.insert(Box::from(vertex.topic().node()));
            }
            self.vertices.entry(topic).or_insert(vertex);
        }
        self.learn_folders();
    }

    /// A folder stays when who kept it is gone.
    fn learn_folders(&mut self) {
        let told: Vec<PathBuf> = self.tellers.iter().filter_map(folder_of).collect();
        told.into_iter().for_each(|folder| self.add(folder));
    }

    fn add(&mut self, folder: PathBuf) {
        let folder = std::fs::canonicalize(&folder).unwrap_or(folder);
        self.folders.entry(folder).or_insert_with_key(|path| Arc::new(Folder::new(path.clone())));
    }
}

fn described(vertex: &Vertex) -> Described<'_> {
    let info = vertex.info();
    Described {
        topic: &info.topic,
        unit: info.unit,
        kind: info.kind,
        value_type: info.value_type,
        publisher: vertex.segment().name(),
    }
}

/// Describes a built-in insight. Others are known to the agent that computes them.
pub fn insight_info(topic: &Topic) -> InsightInfo {
    let built_in = DEFINITIONS.iter().find(|d| d.metric.name == topic.metric());
    let formula = built_in.map(|definition| definition.formula.to_owned());
    InsightInfo { formula, reason: None }
}

impl Source for Local {
    fn now(&self) -> Timestamp {
        now()
    }

    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
        self.visit(wanted, &mut |vertex| {
            // One that has no sample yet, or is gone, has no row.
            if let Ok(reading) = vertex.latest() {
                let (sample, checked_at) = (&reading.sample, reading.checked_at);
                visit(&Row { of: described(vertex), sample, checked_at, ahead: 0 });
            }
        });
    }

    fn samples(
        &self,
        wanted: &Wanted,
        times: RangeInclusive<Timestamp>,
        visit: &mut dyn FnMut(&Row<'_>),
    ) {
        self.visit(wanted, &mut |vertex| {
            let Ok(range) = vertex.range(times.clone()) else { return };
            for sample in &range.samples {
                visit(&Row { of: described(vertex), sample, checked_at: sample.time, ahead: 0 });
            }
        });
    }

    fn history(&self, times: &RangeInclusive<Timestamp>) -> Result<Vec<Arc<Part>>, history::Error> {
        let mut parts = Vec::new();
        for folder in self.folders() {
            parts.extend(folder.parts(times)?);
        }
        Ok(parts)
    }

    fn has_history(&self) -> bool {
        !self.folders().is_empty()
    }

    fn topics(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Described<'_>)) {
        self.visit(wanted, &mut |vertex| visit(&described(vertex)));
    }

    fn nodes(&self) -> Vec<Node> {
        let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
        self.visit(&Wanted::All, &mut |vertex| {
            let name = vertex.topic().node();
            let node = nodes.entry(name.to_owned()).or_insert_with(|| Node {
                name: name.to_owned(),
                alive: true,
                topics: 0,
                seen_at: Timestamp::from_nanos(0),
                lost_batches: 0,
                malformed_batches: 0,
                clock_offset: None,
            });
            node.topics += 1;
            if let Ok(reading) = vertex.peek() {
                node.seen_at = node.seen_at.max(reading.checked_at);
            }
        });
        nodes.retain(|name, _| self.has_node(name));
        nodes.into_values().collect()
    }

    fn count(&self, topic: &Topic) -> Option<u64> {
        let mut count = None;
        let wanted = Wanted::These(vec![topic.clone()]);
        self.visit(&wanted, &mut |vertex| count = Some(vertex.count()));
        count
    }
}
