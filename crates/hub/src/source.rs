//! The source of the hub's query engine: segments of this machine, and mirrors of all other nodes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Instant;

use skopos_model::{Timestamp, Topic, unpoisoned};
use skopos_query::{Described, Node, RemoteAnswer, Row, Source, Wanted, When};
use skopos_store::history::{self, Found};
use skopos_wire::{Follower, NodeState, Plane, Site, Vertex};

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

/// The node of a mirrored topic.
struct RemoteNode<'a> {
    node: &'a str,
    /// Nanoseconds that its clock is ahead, as in [`Row`].
    ahead: i64,
}

impl<'a> RemoteNode<'a> {
    fn new(node: &'a str, state: &NodeState) -> Self {
        Self { node, ahead: state.clock_offset().unwrap_or_default() }
    }
}

fn described<'a>(of: &RemoteNode<'a>, vertex: &'a Vertex) -> Described<'a> {
    let (description, publisher) = (&vertex.description, of.node);
    Described {
        topic: &description.topic,
        unit: description.unit,
        kind: description.kind,
        value_type: description.value_type,
        publisher,
    }
}

impl Source for HubSource {
    fn now(&self) -> Timestamp {
        self.local.now()
    }

    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
        self.local.latest(wanted, visit);
        self.others(wanted, &mut |of, vertex| {
            if let Some(sample) = vertex.recent.last() {
                let (checked_at, ahead) = (vertex.checked_at, of.ahead);
                visit(&Row { of: described(of, vertex), sample: &sample, checked_at, ahead });
            }
        });
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
                visit(&Row { of: described(of, vertex), sample: &sample, checked_at, ahead });
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
