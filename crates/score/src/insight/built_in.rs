//! Makes vertices of the built-in insights as facts appear, and takes them away as facts vanish.
//!
//! The agent tells of each fact that comes, goes, or is a text that changed; the answer is what to
//! add to the graph and what to remove from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use skopos_model::Topic;
use skopos_model::schema::{Metric, device, fsinfo, peer, remote_fs, slurm};

use super::definition::Formula;
use super::tier_remaining_capacity::{default_remote_tier, default_tier};
use super::*;
use crate::InsightSpec;

/// The most devices, file systems, peers and jobs each that insights are about: with nine insights a
/// device, more would crowd out the facts themselves.
pub const MAX_INSTANCES: usize = 128;

/// Kinds of devices that insights are not about: what they do is seen at the device or the memory
/// that holds them.
const DISGUISED: &[&str] = &["loop", "zram", "ram"];

/// The instance of insights about the node itself.
const THE_NODE: &str = "node";

/// Every definition, and whom there are vertices about.
pub struct BuiltIn {
    node: Arc<str>,
    tiers: Arc<Tiers>,
    /// Devices and their kinds.
    kinds: BTreeMap<Box<str>, Box<str>>,
    /// File systems and their types.
    types: BTreeMap<Box<str>, Box<str>>,
    /// File systems and the devices that hold them.
    holders: BTreeMap<Box<str>, Box<str>>,
    /// File systems that others serve, and their types.
    served: BTreeMap<Box<str>, Box<str>>,
    peers: BTreeSet<Box<str>>,
    jobs: BTreeSet<Box<str>>,
    /// Whom there are vertices about now.
    present: BTreeMap<Instances, BTreeSet<Box<str>>>,
    /// Families that are not measured, and why.
    missing: BTreeMap<Box<str>, Box<str>>,
}

/// What to do with the graph.
#[derive(Default)]
pub struct Changes {
    /// Vertices to add. An input of one may be another one that comes later.
    pub added: Vec<Vertex>,
    /// Topics of vertices to remove.
    pub removed: Vec<Topic>,
}

/// A vertex of a built-in insight.
pub struct Vertex {
    /// Which one it is.
    pub definition: &'static Definition,
    /// What it is for the graph.
    pub spec: InsightSpec,
    /// What computes it.
    pub insight: Box<dyn Insight>,
}

/// How a definition stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// How many vertices there are of it.
    pub vertices: usize,
    /// How many more there would be, were there room for more than [`MAX_INSTANCES`] and were their
    /// names not too long for a topic.
    pub refused: usize,
    /// Why there is none, if there is none.
    pub why_none: Option<String>,
}

const ALL_INSTANCES: [Instances; 6] = [
    Instances::Node,
    Instances::Devices,
    Instances::FileSystems,
    Instances::Tiers,
    Instances::Peers,
    Instances::Jobs,
];

impl BuiltIn {
    /// The insights of `node`, a segment of topics, with what the `tiers` file says. The vertices
    /// that need no fact to be there come at once.
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
            present: BTreeMap::new(),
            missing: BTreeMap::new(),
        };
        let changes = built_in.update();
        (built_in, changes)
    }

    /// A fact appeared, or its text changed. `text` is the value of a structured fact that is a
    /// text, if it is known already.
    pub fn fact(&mut self, topic: &Topic, text: Option<&str>) -> Changes {
        let Some((metric, instance)) = self.anchor(topic) else { return Changes::default() };
        let instance: Box<str> = instance.into();
        let told = |map: &mut BTreeMap<Box<str>, Box<str>>, instance| match text {
            Some(text) => map.insert(instance, text.into()).as_deref() != Some(text),
            None => false,
        };
        let changed = match metric {
            Anchor::Kind => told(&mut self.kinds, instance),
            Anchor::Type => {
                let is_new = !self.types.contains_key(&instance);
                self.types.entry(instance.clone()).or_default();
                told(&mut self.types, instance) || is_new
            }
            Anchor::Holder => told(&mut self.holders, instance),
            Anchor::Served => told(&mut self.served, instance),
            Anchor::Peer => self.peers.insert(instance),
            Anchor::Job => self.jobs.insert(instance),
        };
        if changed { self.update() } else { Changes::default() }
    }

    /// A fact vanished.
    pub fn fact_gone(&mut self, topic: &Topic) -> Changes {
        let Some((metric, instance)) = self.anchor(topic) else { return Changes::default() };
        let changed = match metric {
            Anchor::Kind => self.kinds.remove(instance).is_some(),
            Anchor::Type => self.types.remove(instance).is_some(),
            Anchor::Holder => self.holders.remove(instance).is_some(),
            Anchor::Served => self.served.remove(instance).is_some(),
            Anchor::Peer => self.peers.remove(instance),
            Anchor::Job => self.jobs.remove(instance),
        };
        if changed { self.update() } else { Changes::default() }
    }

    /// Why the facts of a family are not measured; `None` once they are.
    pub fn set_missing(&mut self, family: &str, reason: Option<&str>) {
        match reason {
            Some(reason) => self.missing.insert(family.into(), reason.into()),
            None => self.missing.remove(family),
        };
    }

    /// How each of [`DEFINITIONS`] stands, in their order.
    pub fn standing(&self) -> impl Iterator<Item = (&'static Definition, Standing)> {
        DEFINITIONS.iter().map(|definition| {
            let instances = definition.instances;
            let vertices = self.present.get(&instances).map_or(0, BTreeSet::len);
            let refused = self.wanted(instances).len() - vertices;
            let why_none = (vertices == 0).then(|| self.why_none(instances));
            (*definition, Standing { vertices, refused, why_none })
        })
    }

    /// Devices that the tiers file names and this machine has not; none before any device is known.
    pub fn unknown_devices(&self) -> impl Iterator<Item = &str> {
        let is_there = |name: &&str| self.kinds.contains_key(&*tiers::instance_of(name));
        self.tiers.devices().filter(|_| !self.kinds.is_empty()).filter(move |name| !is_there(name))
    }

    /// The fact by which an instance is known, if `topic` is one of this node.
    fn anchor<'t>(&self, topic: &'t Topic) -> Option<(Anchor, &'t str)> {
        let below_node = topic.as_str().strip_prefix(&*self.node)?.strip_prefix('/')?;
        let (path, rest) = below_node.split_once('/')?;
        let (instance, name) = rest.split_once('/')?;
        let is = |metric: &Metric| metric.path == path && metric.name == name;
        let anchor = ANCHORS.iter().find(|(metric, _)| is(metric))?.1;
        Some((anchor, instance))
    }

    /// Whom there should be vertices about.
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
        }
    }

    /// Brings what is present to what is wanted.
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

    /// False for a name so long that topics would be too long; that of the fact by which it is
    /// known was shorter.
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
            Instances::Node => ("", "it was refused"),
            Instances::Devices => ("device", "there is no block device that stands for itself"),
            Instances::FileSystems => ("fsinfo", "there is no local file system"),
            Instances::Tiers => (
                "fsinfo",
                "there is no tiers file, and no file system on a device of a known kind or of \
                 another machine: see docs/reference/tiers.md",
            ),
            Instances::Peers => ("peer", "no peer is configured"),
            Instances::Jobs => ("slurm", "no job has an allocation on this node"),
        };
        match self.missing.get(family) {
            Some(reason) => format!("{family}: skipped: {reason}"),
            None => otherwise.to_owned(),
        }
    }
}

/// What a fact tells about whom there are vertices about.
#[derive(Clone, Copy)]
enum Anchor {
    Kind,
    Type,
    Holder,
    Served,
    Peer,
    Job,
}

static ANCHORS: [(&Metric, Anchor); 6] = [
    (&device::KIND, Anchor::Kind),
    (&fsinfo::TYPE, Anchor::Type),
    (&fsinfo::DEVICE, Anchor::Holder),
    (&remote_fs::TYPE, Anchor::Served),
    (&peer::PROBES_TOTAL, Anchor::Peer),
    (&slurm::ALLOCATION, Anchor::Job),
];
