//! What the hub's engine reads: the segments of this machine, and mirrors of all other nodes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use skopos_model::{Timestamp, Topic, unpoisoned};
use skopos_query::{Described, Node, RemoteAnswer, Row, Source, Wanted, When};
use skopos_store::history::{self, Part};
use skopos_wire::{Follower, NodeState, Plane, Site, Vertex};

use crate::insights::Abouts;
use crate::local::{Local, insight_info};
use crate::past::{Asks, ask, has_all, question};
use crate::tables::InsightInfo;

/// This machine and, if the hub follows a site, the others.
#[derive(Debug)]
pub struct HubSource {
    local: Local,
    site: Option<Site>,
    /// Through which nodes of the site are asked for what they have kept.
    plane: Option<Plane>,
    /// Of the hub's own insights.
    abouts: Abouts,
}

impl HubSource {
    pub fn new(local: Local, follower: Option<&Follower>, abouts: Abouts) -> Self {
        let site = follower.map(|f| f.site().clone());
        Self { local, site, plane: follower.map(|f| f.plane().clone()), abouts }
    }

    /// Describes the insight at `topic`.
    pub(super) fn insight_info(&self, topic: &Topic) -> InsightInfo {
        let own = unpoisoned(self.abouts.read()).get(topic).cloned();
        own.unwrap_or_else(|| insight_info(topic))
    }

    /// Where the archive of tasks is, or would be.
    pub(super) fn archive_file(&self) -> Option<&Path> {
        self.local.archive_file()
    }

    /// Whether topics of this name are published on this machine.
    pub fn is_here(&self, node: &str) -> bool {
        self.local.has_node(node)
    }

    /// Shows what other nodes have that is wanted.
    fn others(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Of<'_>, &Vertex)) {
        let Some(site) = &self.site else { return };
        let is_own = |name: &str| self.local.has_node(name);
        if let Wanted::These(topics) = wanted {
            for topic in topics.iter().filter(|topic| !is_own(topic.node())) {
                let Some(node) = site.node(topic.node()) else { continue };
                let state = node.state();
                if let Some(vertex) = state.mirror.find(topic) {
                    visit(&Of::new(node.name(), &state), vertex);
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
            let of = Of::new(node.name(), &state);
            for vertex in state.mirror.vertices() {
                if wanted.selects(vertex.description.topic.as_str()) {
                    visit(&of, vertex);
                }
            }
        }
    }
}

/// Of which node something is.
struct Of<'a> {
    node: &'a str,
    /// As rows have it.
    ahead: i64,
}

impl<'a> Of<'a> {
    fn new(node: &'a str, state: &NodeState) -> Self {
        Self { node, ahead: state.clock_offset().unwrap_or_default() }
    }
}

fn described<'a>(of: &Of<'a>, vertex: &'a Vertex) -> Described<'a> {
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

    fn history(&self, times: &RangeInclusive<Timestamp>) -> Result<Vec<Arc<Part>>, history::Error> {
        self.local.history(times)
    }

    fn remote_samples(&self, wanted: &Wanted, when: &When, until: Instant) -> Option<RemoteAnswer> {
        let (site, plane) = (self.site.as_ref()?, self.plane.as_ref()?);
        let now = self.now();
        let mut asks = Asks { nodes: Vec::new(), missing: Vec::new() };
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
