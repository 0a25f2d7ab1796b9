//! Creates the vertices of the built-in insights as facts appear, and removes them as facts vanish.
//!
//! The agent reports each fact that appears, vanishes, or is a text that changed; the answer lists
//! the vertices to add to the graph and the vertices to remove.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use skopos_model::Topic;
use skopos_model::schema::{Metric, device, fsinfo, path, peer, remote_fs, slurm};

use super::definition::Formula;
use super::tier_remaining_capacity::{default_remote_tier, default_tier};
use super::*;
use crate::graph::InsightSpec;

/// The most devices, file systems, peers, jobs and paths each with insights: a device has nine insights,
/// and more devices would crowd out the facts themselves.
pub const MAX_INSTANCES: usize = 128;

/// Kinds of devices without insights: their I/O appears at the device or the memory that holds
/// them.
const DISGUISED: &[&str] = &["loop", "zram", "ram"];

/// The instance of insights about the node itself.
const THE_NODE: &str = "node";

/// All definitions, and the instances that have vertices.
pub struct BuiltIn {
    node: Arc<str>,
    tiers: Arc<Tiers>,
    /// The kind of each device.
    kinds: BTreeMap<Box<str>, Box<str>>,
    /// The type of each file system.
    types: BTreeMap<Box<str>, Box<str>>,
    /// The device that holds each file system.
    holders: BTreeMap<Box<str>, Box<str>>,
    /// The type of each file system that another machine serves.
    served: BTreeMap<Box<str>, Box<str>>,
    peers: BTreeSet<Box<str>>,
    jobs: BTreeSet<Box<str>>,
    paths: BTreeSet<Box<str>>,
    /// The instances that have vertices now.
    present: BTreeMap<Instances, BTreeSet<Box<str>>>,
    /// The families that are not measured, with the reason.
    missing: BTreeMap<Box<str>, Box<str>>,
}

/// The changes to make to the graph.
#[derive(Default)]
pub struct Changes {
    /// Vertices to add. An input of a vertex may be a vertex that comes later in the list.
    pub added: Vec<Vertex>,
    /// Topics of vertices to remove.
    pub removed: Vec<Topic>,
}

/// A vertex of a built-in insight.
pub struct Vertex {
    /// Its definition.
    pub definition: &'static Definition,
    /// Its declaration for the graph.
    pub spec: InsightSpec,
    /// Its computation.
    pub insight: Box<dyn Insight>,
}

/// The state of a definition.
#[derive(Clone, Debug, PartialEq)]
pub struct DefinitionState {
    /// The number of its vertices.
    pub vertices: usize,
    /// The number of further instances without a vertex, because there are more than
    /// [`MAX_INSTANCES`] or a name is too long for a topic.
    pub refused: usize,
    /// The reason if there are no vertices.
    pub why_none: Option<String>,
}

const ALL_INSTANCES: [Instances; 7] = [
    Instances::Node,
    Instances::Devices,
    Instances::FileSystems,
    Instances::Tiers,
    Instances::Peers,
    Instances::Jobs,
    Instances::Paths,
];

impl BuiltIn {
    /// Creates the insights of `node`, a segment of topics, with the contents of the `tiers` file.
    /// The returned changes add the vertices that do not depend on a fact.
    pub fn new(node: &str, tiers: Tiers) -> (Self, Changes) {
        let mut built_in = Self {
            node: node.into(),
            tiers: Arc::new(tiers),
            kinds: BTreeMap::new(),
            types: BTreeMap::new(),
            holders: BTreeMap::new(),
            served: BTreeMap::new(),
            peers: BTreeSet::new(),
            jobs: BTreeSet::new(),
            paths: BTreeSet::new(),
            present: BTreeMap::new(),
            missing: BTreeMap::new(),
        };
        let changes = built_in.update();
        (built_in, changes)
    }

    /// Records that a fact appeared or that its text changed. `text` is the value of a structured
    /// fact that is a text, if it is known already.
    pub fn fact(&mut self, topic: &Topic, text: Option<&str>) -> Changes {
        let Some((metric, instance)) = self.anchor(topic) else { return Changes::default() };
        let instance: Box<str> = instance.into();
        let set = |map: &mut BTreeMap<Box<str>, Box<str>>, instance| match text {
            Some(text) => map.insert(instance, text.into()).as_deref() != Some(text),
            None => false,
        };
        let changed = match metric {
            Anchor::Kind => set(&mut self.kinds, instance),
            Anchor::Type => {
                let is_new = !self.types.contains_key(&instance);
                self.types.entry(instance.clone()).or_default();
                set(&mut self.types, instance) || is_new
            }
            Anchor::Holder => set(&mut self.holders, instance),
            Anchor::Served => set(&mut self.served, instance),
            Anchor::Peer => self.peers.insert(instance),
            Anchor::Job => self.jobs.insert(instance),
            Anchor::Path => self.paths.insert(instance),
        };
        if changed { self.update() } else { Changes::default() }
    }

    /// Records that a fact vanished.
    pub fn fact_gone(&mut self, topic: &Topic) -> Changes {
        let Some((metric, instance)) = self.anchor(topic) else { return Changes::default() };
        let changed = match metric {
            Anchor::Kind => self.kinds.remove(instance).is_some(),
            Anchor::Type => self.types.remove(instance).is_some(),
            Anchor::Holder => self.holders.remove(instance).is_some(),
            Anchor::Served => self.served.remove(instance).is_some(),
            Anchor::Peer => self.peers.remove(instance),
            Anchor::Job => self.jobs.remove(instance),
            Anchor::Path => self.paths.remove(instance),
        };
        if changed { self.update() } else { Changes::default() }
    }

    /// Records why the facts of a family are not measured; `None` once they are.
    pub fn set_missing(&mut self, family: &str, reason: Option<&str>) {
        match reason {
            Some(reason) => self.missing.insert(family.into(), reason.into()),
            None => self.missing.remove(family),
        };
    }

    /// Returns the state of each of [`DEFINITIONS`], in their order.
    pub fn states(&self) -> impl Iterator<Item = (&'static Definition, DefinitionState)> {
        DEFINITIONS.iter().map(|definition| {
            let instances = definition.instances;
            let vertices = self.present.get(&instances).map_or(0, BTreeSet::len);
            let refused = self.wanted(instances).len() - vertices;
            let why_none = (vertices == 0).then(|| self.why_none(instances));
            (*definition, DefinitionState { vertices, refused, why_none })
        })
    }

    /// Returns the devices that the tiers file names and this machine does not have; empty until a
    /// device is known.
    pub fn unknown_devices(&self) -> impl Iterator<Item = &str> {
        let is_there = |name: &&str| self.kinds.contains_key(&*tiers::instance_of(name));
        self.tiers.devices().filter(|_| !self.kinds.is_empty()).filter(move |name| !is_there(name))
    }

    /// Returns the instance that the fact at `topic` announces, if it is an announcing fact of this
    /// node.
    fn anchor<'t>(&self, topic: &'t Topic) -> Option<(Anchor, &'t str)> {
        let below_node = topic.as_str().strip_prefix(&*self.node)?.strip_prefix('/')?;
        let (path, rest) = below_node.split_once('/')?;
        let (instance, name) = rest.split_once('/')?;
        let is = |metric: &Metric| metric.path == path && metric.name == name;
        let anchor = ANCHORS.iter().find(|(metric, _)| is(metric))?.1;
        Some((anchor, instance))
    }

    /// Returns the instances that should have vertices.
    fn wanted(&self, instances: Instances) -> BTreeSet<Box<str>> {
        let owned = |names: &mut dyn Iterator<Item = &str>| names.map(Box::from).collect();
        match instances {
            Instances::Node => owned(&mut [THE_NODE].into_iter()),
            Instances::Devices => {
                let kinds = self.kinds.iter().map(|(device, kind)| (&**device, &**kind));
                let themselves = kinds.filter(|(_, kind)| !DISGUISED.contains(kind));
                owned(&mut themselves.map(|(device, _)| device))
            }
            Instances::FileSystems => self.types.keys().cloned().collect(),
            Instances::Tiers if self.tiers.tiers().is_empty() => {
                let local = self.types.iter().filter_map(|(fs, fs_type)| {
                    let device = self.holders.get(fs).map(|device| tiers::instance_of(device));
                    let kind = device.and_then(|device| self.kinds.get(&*device));
                    default_tier(fs_type, kind.map(|kind| &**kind)).map(Box::from)
                });
                let served = self.served.values().filter_map(|kind| default_remote_tier(kind));
                local.chain(served.map(String::into_boxed_str)).collect()
            }
            Instances::Tiers => owned(&mut self.tiers.tiers().iter().map(|tier| &*tier.name)),
            Instances::Peers => self.peers.clone(),
            Instances::Jobs => self.jobs.clone(),
            Instances::Paths => self.paths.clone(),
        }
    }

    /// Adds and removes vertices so that the present instances become the wanted ones.
    fn update(&mut self) -> Changes {
        let mut changes = Changes::default();
        for instances in ALL_INSTANCES {
            let fitting = self.wanted(instances).into_iter().filter(|i| self.fits(instances, i));
            let wanted: BTreeSet<_> = fitting.take(MAX_INSTANCES).collect();
            let present = self.present.insert(instances, wanted.clone()).unwrap_or_default();
            let definitions = DEFINITIONS.iter().filter(|d| d.instances == instances);
            for definition in definitions {
                let topics =
                    present.difference(&wanted).filter_map(|gone| self.topic(definition, gone));
                changes.removed.extend(topics);
                let vertices =
                    wanted.difference(&present).filter_map(|new| self.vertex(definition, new));
                changes.added.extend(vertices);
            }
        }
        changes
    }

    /// Returns false for a name so long that a topic of an insight would be too long, although the
    /// topic of the announcing fact is not.
    fn fits(&self, instances: Instances, name: &str) -> bool {
        let mut definitions = DEFINITIONS.iter().filter(|d| d.instances == instances);
        definitions.all(|definition| self.topic(definition, name).is_some())
    }

    fn topic(&self, definition: &'static Definition, instance: &str) -> Option<Topic> {
        definition.metric.topic(&self.node, instance).ok()
    }

    fn vertex(&self, definition: &'static Definition, instance: &str) -> Option<Vertex> {
        let Definition { metric, name, formula, inputs, .. } = definition;
        let spec = InsightSpec {
            topic: self.topic(definition, instance)?,
            unit: metric.unit,
            kind: metric.kind,
            value_type: metric.value_type,
            inputs: inputs.iter().map(|input| input.input(&self.node, instance)).collect(),
            name: (*name).to_owned(),
            formula: (*formula).to_owned(),
        };
        let subject = Subject {
            node: self.node.clone(),
            instance: instance.into(),
            tiers: self.tiers.clone(),
        };
        let insight = Box::new(Formula { definition, subject });
        Some(Vertex { definition, spec, insight })
    }

    fn why_none(&self, instances: Instances) -> String {
        let (family, otherwise) = match instances {
            Instances::Node => ("", "the graph refused it"),
            Instances::Devices => {
                ("device", "there is no block device apart from loop devices, zram and RAM disks")
            }
            Instances::FileSystems => ("fsinfo", "this machine has no local file system"),
            Instances::Tiers => (
                "fsinfo",
                "there is no tiers file, and no file system lies on a device of a known kind or on \
                 another machine: see docs/reference/tiers.md",
            ),
            Instances::Peers => ("peer", "no peer is configured"),
            Instances::Jobs => ("slurm", "no job has an allocation on this node"),
            Instances::Paths => {
                ("path", "no packet with in-band telemetry was reported to this node")
            }
        };
        match self.missing.get(family) {
            Some(reason) => format!("{family}: skipped: {reason}"),
            None => otherwise.to_owned(),
        }
    }
}

/// The property of an instance that a fact announces.
#[derive(Clone, Copy)]
enum Anchor {
    Kind,
    Type,
    Holder,
    Served,
    Peer,
    Job,
    Path,
}

static ANCHORS: [(&Metric, Anchor); 7] = [
    (&device::KIND, Anchor::Kind),
    (&fsinfo::TYPE, Anchor::Type),
    (&fsinfo::DEVICE, Anchor::Holder),
    (&remote_fs::TYPE, Anchor::Served),
    (&peer::PROBES_TOTAL, Anchor::Peer),
    (&slurm::ALLOCATION, Anchor::Job),
    (&path::PACKETS_TOTAL, Anchor::Path),
];
