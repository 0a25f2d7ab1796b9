//! What the hub's engine reads: the segments of this machine, and mirrors of all other nodes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use skopos_model::{Timestamp, Topic};
use skopos_query::{About, Asked, Described, Node, Row, Source, Wanted, When};
use skopos_store::archive::{self, Archive};
use skopos_store::history::{self, Part};
use skopos_wire::{Follower, Mirror, Plane, Question, Site, Vertex};

use super::insights::Abouts;
use super::past::{Asks, ask, question};
use crate::sql::Local;

/// This machine and, if the hub follows a site, the others.
#[derive(Debug)]
pub(crate) struct HubSource {
    local: Local,
    site: Option<Site>,
    /// Through which nodes of the site are asked for what they have kept.
    plane: Option<Plane>,
    /// Of the hub's own insights.
    abouts: Abouts,
}

impl HubSource {
    pub(crate) fn new(local: Local, follower: Option<&Follower>, abouts: Abouts) -> Self {
        let site = follower.map(|f| f.site().clone());
        Self { local, site, plane: follower.map(|f| f.plane().clone()), abouts }
    }

    /// Whether topics of this name are published on this machine.
    pub(super) fn is_here(&self, node: &str) -> bool {
        self.local.has_node(node)
    }

    /// Shows what other nodes have that is wanted.
    fn others(&self, wanted: &Wanted, visit: &mut dyn FnMut(&str, &Vertex)) {
        let Some(site) = &self.site else { return };
        let is_own = |name: &str| self.local.has_node(name);
        if let Wanted::These(topics) = wanted {
            for topic in topics.iter().filter(|topic| !is_own(topic.node())) {
                if let Some(node) = site.node(topic.node())
                    && let Some(vertex) = node.state().mirror.find(topic)
                {
                    visit(node.name(), vertex);
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
            for vertex in node.state().mirror.vertices() {
                if wanted.selects(vertex.description.topic.as_str()) {
                    visit(node.name(), vertex);
                }
            }
        }
    }
}

/// Whether a mirror has all of it: what a vertex had before its oldest sample here it has not.
fn has_all(mirror: &Mirror, question: &Question, when: &When) -> bool {
    let from = match when {
        When::During(times) => *times.start(),
        When::AsOf(time) => *time,
    };
    let Question { topics, starts, .. } = question;
    let is_known =
        |topic: &String| Topic::new(topic).is_ok_and(|topic| mirror.find(&topic).is_some());
    let mut vertices = mirror.vertices().filter(|vertex| {
        let topic = vertex.description.topic.as_str();
        topics.iter().any(|t| t == topic) || starts.iter().any(|s| topic.starts_with(s.as_str()))
    });
    topics.iter().all(is_known)
        && vertices.all(|vertex| vertex.recent.first_time().is_none_or(|first| first <= from))
}

fn described<'a>(publisher: &'a str, vertex: &'a Vertex) -> Described<'a> {
    let description = &vertex.description;
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
        self.others(wanted, &mut |node, vertex| {
            if let Some(sample) = vertex.recent.last() {
                let of = described(node, vertex);
                visit(&Row { of, sample: &sample, checked_at: vertex.checked_at });
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
        self.others(wanted, &mut |node, vertex| {
            for sample in vertex.recent.iter().filter(|sample| times.contains(&sample.time)) {
                let of = described(node, vertex);
                visit(&Row { of, sample: &sample, checked_at: sample.time });
            }
        });
    }

    fn history(&self, times: &RangeInclusive<Timestamp>) -> Result<Vec<Arc<Part>>, history::Error> {
        self.local.history(times)
    }

    fn elsewhere(&self, wanted: &Wanted, when: &When, until: Instant) -> Option<Asked> {
        let (site, plane) = (self.site.as_ref()?, self.plane.as_ref()?);
        let mut asks = Asks { nodes: Vec::new(), missing: Vec::new() };
        for node in site.nodes().iter().filter(|node| !self.local.has_node(node.name())) {
            let (name, state) = (node.name().to_owned(), node.state());
            let question = question(&name, wanted, when);
            let is_wanted = !question.topics.is_empty() || !question.starts.is_empty();
            if !is_wanted || has_all(&state.mirror, &question, when) {
                continue;
            }
            match state.is_alive {
                true => asks.nodes.push((name, state.incarnation, question)),
                false => asks.missing.push(name),
            }
        }
        let is_any = !asks.nodes.is_empty() || !asks.missing.is_empty();
        is_any.then(|| Box::pin(ask(plane.clone(), asks, until)) as Asked)
    }

    fn has_history(&self) -> bool {
        self.local.has_history()
    }

    fn archive(&self) -> Result<Option<Archive>, archive::Error> {
        self.local.archive()
    }

    fn topics(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Described<'_>)) {
        self.local.topics(wanted, visit);
        self.others(wanted, &mut |node, vertex| visit(&described(node, vertex)));
    }

    fn about(&self, topic: &Topic) -> About {
        let own = self.abouts.read().unwrap_or_else(PoisonError::into_inner).get(topic).cloned();
        own.unwrap_or_else(|| self.local.about(topic))
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
                seen_at: vertices.map(|v| v.checked_at).max().unwrap_or_default(),
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
        node.state().mirror.find(topic).map(|vertex| vertex.told)
    }
}
