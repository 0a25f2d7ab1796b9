//! The source of the hub's query engine: segments of this machine, and mirrors of all other nodes.

mod read_samples;
mod remote;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use skopos_model::{Timestamp, Topic, unpoisoned};
use skopos_query::{Described, LatestReader, Node, RemoteAnswer, Row, Source, Wanted, When};
use skopos_store::history::{self, Found};
use skopos_wire::{Follower, Node as SiteNode, Plane, Site, Vertex};

use self::read_samples::ReadSamples;
use self::remote::{RemoteNode, described, latest_row};
use crate::insight_infos::InsightInfos;
use crate::local::Local;
use crate::past::{NodeQuestions, ask, has_all, question};
use crate::tables::InsightInfo;

/// This machine and, if the hub follows a site, its other nodes.
#[derive(Debug)]
pub struct HubSource {
    local: Local,
    site: Option<Site>,
    /// The connection through which nodes are asked for their history.
    plane: Option<Plane>,
    /// Formulas and reasons of the hub's own insights.
    infos: InsightInfos,
}

impl HubSource {
    /// Joins `local` with the nodes that `follower` mirrors.
    pub(crate) fn new(local: Local, follower: Option<&Follower>, infos: InsightInfos) -> Self {
        let site = follower.map(|f| f.site().clone());
        Self { local, site, plane: follower.map(|f| f.plane().clone()), infos }
    }

    /// Describes the insight at `topic`.
    pub(crate) fn insight_info(&self, topic: &Topic) -> InsightInfo {
        let own = unpoisoned(self.infos.read()).get(topic).cloned();
        own.unwrap_or_else(|| self.local.insight_info(topic))
    }

    /// The path of the archive of tasks, which need not exist.
    pub(crate) fn archive_file(&self) -> Option<&Path> {
        self.local.archive_file()
    }

    /// Returns the path of the folder of traces, whether it exists or not.
    pub(crate) fn traces_folder(&self) -> Option<&Path> {
        self.local.traces_folder()
    }

    /// Returns the nodes of the site that are not of this machine.
    fn other_nodes(&self) -> Vec<Arc<SiteNode>> {
        let nodes = self.site.iter().flat_map(Site::nodes);
        nodes.filter(|node| !self.local.has_node(node.name())).collect()
    }

    /// Returns true if `node` is a node of this machine.
    pub(crate) fn is_local(&self, node: &str) -> bool {
        self.local.has_node(node)
    }

    /// Shows the wanted topics of other nodes.
    fn others(&self, wanted: &Wanted, visit: &mut dyn FnMut(&RemoteNode<'_>, &Vertex)) {
        let Some(site) = &self.site else { return };
        let is_own = |name: &str| self.local.has_node(name);
        if let Wanted::These(topics) = wanted {
            for topic in topics.iter().filter(|topic| !is_own(topic.node())) {
                let Some(node) = site.node(topic.node()) else { continue };
                let state = node.state();
                if let Some(vertex) = state.mirror.find(topic) {
                    visit(&RemoteNode::new(node.name(), &state), vertex);
                }
            }
            return;
        }
        for node in site.nodes() {
            let may_have = match wanted {
                Wanted::Starting(starts) => starts.iter().any(|start| {
                    let name = node.name();
                    let shorter = start.len().min(name.len());
                    start.as_bytes()[..shorter] == name.as_bytes()[..shorter]
                }),
                _ => true,
            };
            if !may_have || is_own(node.name()) {
                continue;
            }
            let state = node.state();
            let of = RemoteNode::new(node.name(), &state);
            for vertex in state.mirror.vertices() {
                if wanted.selects(vertex.description.topic.as_str()) {
                    visit(&of, vertex);
                }
            }
        }
    }
}

/// Reads the latest samples of a source again and again.
#[derive(Debug)]
struct HubReader {
    source: Arc<HubSource>,
    read: ReadSamples,
}

impl LatestReader for HubReader {
    fn all(&mut self, visit: &mut dyn FnMut(&Row<'_>)) {
        self.read.all(&self.source.local, self.source.other_nodes(), visit);
    }

    fn changed(&mut self, visit: &mut dyn FnMut(usize, &Row<'_>)) -> bool {
        self.read.changed(&self.source.local, &self.source.other_nodes(), visit)
    }
}

impl Source for HubSource {
    fn now(&self) -> Timestamp {
        self.local.now()
    }

    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
        self.local.latest(wanted, visit);
        self.others(wanted, &mut |of, vertex| {
            latest_row(of, vertex, visit);
        });
    }

    fn latest_reader(self: Arc<Self>) -> Option<Box<dyn LatestReader>> {
        Some(Box::new(HubReader { source: self, read: ReadSamples::default() }))
    }

    fn samples(
        &self,
        wanted: &Wanted,
        times: RangeInclusive<Timestamp>,
        visit: &mut dyn FnMut(&Row<'_>),
    ) {
        self.local.samples(wanted, times.clone(), visit);
        self.others(wanted, &mut |of, vertex| {
            for sample in vertex.recent.iter().filter(|sample| times.contains(&sample.time)) {
                let (checked_at, ahead) = (sample.time, of.ahead);
                visit(&Row {
                    of: described(of, vertex),
                    sample: &sample,
                    checked_at,
                    ahead,
                    age: None,
                });
            }
        });
    }

    fn history(&self, times: &RangeInclusive<Timestamp>) -> Result<Found, history::Error> {
        self.local.history(times)
    }

    fn remote_samples(&self, wanted: &Wanted, when: &When, until: Instant) -> Option<RemoteAnswer> {
        let (site, plane) = (self.site.as_ref()?, self.plane.as_ref()?);
        let now = self.now();
        let mut asks = NodeQuestions { nodes: Vec::new(), missing: Vec::new() };
        for node in site.nodes().iter().filter(|node| !self.local.has_node(node.name())) {
            let (name, state) = (node.name().to_owned(), node.state());
            let question = question(&name, wanted, when);
            let is_wanted = !question.topics.is_empty() || !question.starts.is_empty();
            if !is_wanted || has_all(&state, &question, when, now) {
                continue;
            }
            match state.is_alive {
                true => asks.nodes.push((name, state.incarnation, question)),
                false => asks.missing.push(name),
            }
        }
        let is_any = !asks.nodes.is_empty() || !asks.missing.is_empty();
        is_any.then(|| Box::pin(ask(plane.clone(), asks, until)) as RemoteAnswer)
    }

    fn has_history(&self) -> bool {
        self.local.has_history()
    }

    fn topics(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Described<'_>)) {
        self.local.topics(wanted, visit);
        self.others(wanted, &mut |of, vertex| visit(&described(of, vertex)));
    }

    fn nodes(&self) -> Vec<Node> {
        let own = self.local.nodes().into_iter().map(|node| (node.name.clone(), node));
        let mut nodes: BTreeMap<String, Node> = own.collect();
        for node in self.site.iter().flat_map(Site::nodes) {
            let state = node.state();
            let vertices = state.mirror.vertices();
            let found = Node {
                name: node.name().to_owned(),
                alive: state.is_alive,
                topics: vertices.len() as u64,
                seen_at: state.heard_at,
                lost_batches: state.mirror.lost(),
                malformed_batches: state.malformed,
                clock_offset: state.clock_offset(),
            };
            nodes.entry(node.name().to_owned()).or_insert(found);
        }
        nodes.into_values().collect()
    }

    fn count(&self, topic: &Topic) -> Option<u64> {
        if let Some(count) = self.local.count(topic) {
            return Some(count);
        }
        let node = self.site.as_ref()?.node(topic.node())?;
        node.state().mirror.find(topic).map(|vertex| vertex.samples_total)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skopos_model::{Kind, Origin, Unit, Value, ValueType};
    use skopos_shm::Host;
    use skopos_wire::{Batch, Content, Description, IndexedSample, PlaneConfig};

    use super::*;
    use crate::ports::free_port;

    fn batch(sequence: u64, described: &[(u32, &str)], samples: &[(u32, u64)]) -> Batch {
        let describe = |(index, topic): &(u32, &str)| Description {
            index: *index,
            topic: Topic::new(topic).expect("a topic"),
            unit: Unit::NONE,
            kind: Kind::Gauge,
            value_type: ValueType::U64,
        };
        let sample = |(index, n): &(u32, u64)| IndexedSample {
            index: *index,
            time: Timestamp::from_nanos(*n as i64),
            origin: Origin::Measured,
            value: Content::Bits(*n),
        };
        Batch {
            sequence,
            described: described.iter().map(describe).collect(),
            samples: samples.iter().map(sample).collect(),
            ..Batch::default()
        }
    }

    fn shown(row: &Row<'_>) -> (String, Value) {
        (row.of.topic.to_string(), row.sample.value.clone())
    }

    #[test]
    fn a_reader_shows_what_is_new_at_its_place() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = format!("tcp/127.0.0.1:{}", free_port());
        let alone = PlaneConfig::alone("test");
        let hub = PlaneConfig { listen: vec![at.clone()], ..alone.clone() };
        let follower = Follower::start(&Plane::open(&hub).expect("open")).expect("it follows");
        let local = Local::new(Host::open_dirs(vec![dir.path().to_path_buf()]).expect("a host"));
        let source = Arc::new(HubSource::new(local, Some(&follower), InsightInfos::default()));
        let mut reader = source.clone().latest_reader().expect("there is one");
        let node = PlaneConfig { is_client: true, connect: vec![at], ..alone };
        let node = Plane::open(&node).expect("open");
        let topics = [(0, "n01/a"), (1, "n01/b"), (2, "n01/c")];
        let snapshot = move || vec![batch(1, &topics, &[(0, 1), (1, 1)])];
        let outlet = node.announce("n01", 1, snapshot).expect("announced");
        let rows = || {
            let mut rows = Vec::new();
            source.latest(&Wanted::All, &mut |row| rows.push(shown(row)));
            rows.sort_by(|a, b| a.0.cmp(&b.0));
            rows
        };
        let until = |is_so: &dyn Fn() -> bool| {
            let start = Instant::now();
            while !is_so() {
                assert!(start.elapsed() < Duration::from_secs(180), "{:?}", rows());
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        until(&|| rows().len() == 2);
        assert!(!reader.changed(&mut |_, _| ()), "a node has come");
        let mut places = Vec::new();
        reader.all(&mut |row| places.push(shown(row)));
        let show = |reader: &mut Box<dyn LatestReader>, places: &mut Vec<(String, Value)>| {
            let mut count = 0;
            let is_whole = reader.changed(&mut |place, row| {
                let (topic, value) = shown(row);
                assert_eq!(places[place].0, topic, "it keeps its place");
                places[place].1 = value;
                count += 1;
            });
            (is_whole, count)
        };
        assert_eq!(show(&mut reader, &mut places), (true, 0));
        outlet.send(&batch(2, &[], &[(1, 7)])).expect("sent");
        until(&|| rows()[1].1 == Value::U64(7));
        assert_eq!(show(&mut reader, &mut places), (true, 1), "one of two");
        let samples: Vec<_> = (10..20).map(|n| (1, n)).collect();
        outlet.send(&batch(3, &[], &samples)).expect("sent");
        until(&|| rows()[1].1 == Value::U64(19));
        assert_eq!(show(&mut reader, &mut places), (true, 2), "too many to be noted");
        places.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(places, rows());
        outlet.send(&batch(4, &[], &[(2, 30)])).expect("sent");
        until(&|| rows().len() == 3);
        assert!(!show(&mut reader, &mut Vec::new()).0, "a topic has its first sample");
    }
}
