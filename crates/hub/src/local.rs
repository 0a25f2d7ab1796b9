//! The live segments of this machine, as a source of the query engine.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use skopos_model::{Origin, Sample, Timestamp, Topic, Value, unpoisoned};
use skopos_query::{Described, Node, Row, Source, Wanted};
use skopos_score::insight::DEFINITIONS;
use skopos_shm::{Host, Segment, SegmentVersions, Vertex, now};
use skopos_store::history::{self, Folder, Found};

use crate::tables::InsightInfo;
use skopos_agent::folder_of;
use skopos_agent::{HUB_FACTS_NAME, SEGMENT_NAME};
use skopos_term::state;

use crate::reasons::AgentInsights;

/// Time between two searches for publishers and topics that came or went.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Values, samples and history of this machine.
#[derive(Debug)]
pub struct Local {
    state: RwLock<State>,
    /// Path of the archive of tasks, whether it exists or not.
    archive: Option<PathBuf>,
    /// Path of the folder of traces, whether it exists or not.
    traces: Option<PathBuf>,
    insights: AgentInsights,
}

#[derive(Debug)]
struct State {
    host: Host,
    /// Versions of the segments at the last search.
    versions: SegmentVersions,
    /// Vertices by topic; if several segments have a topic, the vertex of the oldest one.
    vertices: BTreeMap<Box<str>, Vertex>,
    /// Names of the nodes: the first segments of all topics except a hub's counts.
    nodes: BTreeSet<Box<str>>,
    searched_at: Instant,
    /// Vertices whose values are paths of history folders.
    folder_vertices: Vec<Vertex>,
    /// Folders of history: those that vertices name, and one that the user names.
    folders: BTreeMap<PathBuf, Arc<Folder>>,
}

impl Local {
    /// Reads the segments that `host` finds, and the archive of tasks at its usual path.
    pub fn new(host: Host) -> Self {
        let mut state = State {
            host,
            versions: SegmentVersions::default(),
            vertices: BTreeMap::new(),
            nodes: BTreeSet::new(),
            searched_at: Instant::now(),
            folder_vertices: Vec::new(),
            folders: BTreeMap::new(),
        };
        state.update();
        let insights = AgentInsights::default();
        let (archive, traces) = (state::archive(), state::traces());
        Self { state: RwLock::new(state), archive, traces, insights }
    }

    /// Uses this archive of tasks instead of the usual one.
    pub fn with_archive(self, file: PathBuf) -> Self {
        Self { archive: Some(file), ..self }
    }

    /// Adds the history in this folder.
    pub fn with_history(self, folder: PathBuf) -> Self {
        unpoisoned(self.state.write()).add(folder);
        self
    }

    /// Returns the path of the archive of tasks, whether it exists or not.
    pub fn archive_file(&self) -> Option<&Path> {
        self.archive.as_deref()
    }

    /// Returns the path of the folder of traces, whether it exists or not.
    pub fn traces_folder(&self) -> Option<&Path> {
        self.traces.as_deref()
    }

    fn folders(&self) -> Vec<Arc<Folder>> {
        self.search();
        let state = unpoisoned(self.state.read());
        state.folders.values().cloned().collect()
    }

    /// Returns true if `name` is a node of this machine. A hub's counts alone do not make a node: without an agent they
    /// have the host's name, and other hubs may know a node of that name.
    pub fn has_node(&self, name: &str) -> bool {
        unpoisoned(self.state.read()).nodes.contains(name)
    }

    /// Shows the wanted vertices.
    fn visit(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Vertex)) {
        self.search();
        let state = unpoisoned(self.state.read());
        match wanted {
            Wanted::All => state.vertices.values().for_each(visit),
            Wanted::These(topics) => {
                topics
                    .iter()
                    .filter_map(|topic| state.vertices.get(topic.as_str()))
                    .for_each(visit);
            }
            // One prefix may begin with another, so each vertex is visited once.
            Wanted::Starting(starts) => {
                let wanted = state.vertices.iter().filter(|(topic, _)| {
                    starts.iter().any(|start| topic.starts_with(start.as_str()))
                });
                wanted.map(|(_, vertex)| vertex).for_each(visit);
            }
        }
    }

    fn vertex(&self, topic: &Topic) -> Option<Vertex> {
        self.search();
        unpoisoned(self.state.read()).vertices.get(topic.as_str()).cloned()
    }

    /// Returns the formula and the reason of an insight. The agent is asked only for what the definitions of
    /// built-in insights and the vertex itself do not tell.
    pub fn insight_info(&self, topic: &Topic) -> InsightInfo {
        let built_in = DEFINITIONS.iter().find(|d| d.metric.name == topic.metric());
        let formula = built_in.map(|definition| definition.formula.to_owned());
        let Some(vertex) = self.vertex(topic) else { return InsightInfo { formula, reason: None } };
        let (is_unknown, reason) = match vertex.latest().map(|reading| reading.sample) {
            Ok(Sample { origin: Origin::Unknown, value: Value::Structured(text), .. }) => {
                (true, text.as_json().as_str().map(str::to_owned))
            }
            Ok(sample) => (sample.origin == Origin::Unknown, None),
            Err(_) => (false, None),
        };
        let is_complete = formula.is_some() && (reason.is_some() || !is_unknown);
        let segment = vertex.segment();
        if is_complete || segment.name() != SEGMENT_NAME {
            return InsightInfo { formula, reason };
        }
        let known = segment.path().parent().and_then(|dir| self.insights.find(dir, topic));
        let known = known.unwrap_or_default();
        let reason = reason.or(known.reason).filter(|_| is_unknown);
        InsightInfo { formula: formula.or(known.formula), reason }
    }

    fn search(&self) {
        let is_due = |state: &State| state.searched_at.elapsed() >= LOOK_EVERY;
        let state = unpoisoned(self.state.read());
        if !is_due(&state) {
            return;
        }
        drop(state);
        let mut state = unpoisoned(self.state.write());
        if is_due(&state) {
            state.searched_at = Instant::now();
            // After a failure the list stays unchanged until the next search.
            let _ = state.host.refresh();
            state.update();
        }
    }
}

impl State {
    fn update(&mut self) {
        let Some(versions) = self.host.changes(&self.versions) else {
            self.update_folders();
            return;
        };
        self.versions = versions;
        self.vertices.clear();
        self.nodes.clear();
        self.folder_vertices.clear();
        for vertex in self.host.segments().iter().flat_map(Segment::vertices) {
            if folder_of(&vertex).is_some() {
                self.folder_vertices.push(vertex.clone());
            }
            let topic = Box::from(vertex.topic().as_str());
            if vertex.segment().name() != HUB_FACTS_NAME {
                self.nodes.insert(Box::from(vertex.topic().node()));
            }
            self.vertices.entry(topic).or_insert(vertex);
        }
        self.update_folders();
    }

    /// Adds new folders. A folder stays after its archiver is gone.
    fn update_folders(&mut self) {
        let named: Vec<PathBuf> = self.folder_vertices.iter().filter_map(folder_of).collect();
        named.into_iter().for_each(|folder| self.add(folder));
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

impl Source for Local {
    fn now(&self) -> Timestamp {
        now()
    }

    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
        self.visit(wanted, &mut |vertex| {
            // A vertex without a sample, or one that is gone, has no row.
            if let Ok(reading) = vertex.latest() {
                let (sample, checked_at) = (&reading.sample, reading.checked_at);
                let age = Some(reading.age());
                visit(&Row { of: described(vertex), sample, checked_at, ahead: 0, age });
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
                visit(&Row {
                    of: described(vertex),
                    sample,
                    checked_at: sample.time,
                    ahead: 0,
                    age: None,
                });
            }
        });
    }

    fn history(&self, times: &RangeInclusive<Timestamp>) -> Result<Found, history::Error> {
        let mut all = Found::default();
        for folder in self.folders() {
            let Found { parts, damaged } = folder.find(times)?;
            all.parts.extend(parts);
            all.damaged.extend(damaged);
        }
        Ok(all)
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

#[cfg(test)]
mod tests {
    use skopos_shm::Publisher;

    use super::*;

    /// Makes the first vertex of a segment one that was polled ten seconds ago, by a clock that was an hour ahead then.
    fn step(publisher: &Publisher) {
        use std::os::unix::fs::FileExt as _;
        const HOUR: i64 = 3_600_000_000_000;
        const CHECKED_AT: u64 = 16;
        const CHECKED_BOOTTIME: u64 = 48;
        let bytes = std::fs::read(publisher.path()).expect("readable");
        let heap = u64::from_le_bytes(bytes[56..64].try_into().expect("eight bytes"));
        let file = std::fs::OpenOptions::new().write(true).open(publisher.path()).expect("ours");
        let write = |at: u64, value: i64| {
            file.write_all_at(&value.to_le_bytes(), heap + at).expect("written");
        };
        write(CHECKED_AT, skopos_shm::now().as_nanos() + HOUR);
        write(CHECKED_BOOTTIME, skopos_shm::boottime().cast_signed() - 10_000_000_000);
    }

    #[test]
    fn a_dead_source_does_not_look_fresh_after_the_clock_was_set_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let publisher = Publisher::builder("stepped").dir(dir.path()).create().expect("a segment");
        let mut writer = publisher.writer::<u64>("n01/a/b").expect("room");
        writer.publish(1).expect("registered");
        step(&publisher);
        let local = Local::new(Host::open_dirs(vec![dir.path().into()]).expect("readable"));
        let (mut ages, now) = (Vec::new(), local.now());
        local.latest(&Wanted::All, &mut |row: &Row<'_>| {
            ages.push(row.age(now));
            let json = crate::topics::json(row, now);
            let json = serde_json::to_value(json).expect("JSON");
            ages.push(Duration::from_secs_f64(json["age_seconds"].as_f64().expect("a number")));
        });
        assert_eq!(ages.len(), 2);
        assert!(ages.iter().all(|age| *age >= Duration::from_secs(9)), "{ages:?}");
    }
}
