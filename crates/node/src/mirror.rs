//! The mirror: facts of other nodes in shared memory of this node, for programs that read them like local facts.
//!
//! Times, origins and poll times are those of the other node. When a node dies, its last values stay and grow
//! old, and `OWN/mirror/NODE/alive` becomes 0.

use std::collections::HashMap;
use std::path::Path;

use skopos_model::schema::{self, Metric};
use skopos_model::{Sample, Timestamp, Topic, TopicPattern};
use skopos_shm::{Publisher, VertexSpec, VertexWriter, now};
use skopos_wire::{
    Description, Follower, Interest, MirrorWatcher, NodeState, NodeWatcher, Plane, Refresher,
};

use skopos_agent::MIRROR_NAME;
use skopos_term::Failure;

/// Largest number of mirrored vertices: the limit of the live plane for a node. A reader opens the whole segment,
/// so all nodes share this limit.
const MAX_VERTICES: u32 = 65_536;

/// Largest size of the segment: room for all vertices with rings of the default length. Memory is allocated when
/// it is needed.
const MAX_BYTES: u64 = 512 << 20;

/// Largest number of patterns. Each new topic is compared with each of them.
const MAX_PATTERNS: usize = 64;

/// The facts about each mirrored node.
static NODE_METRICS: [&Metric; 5] = [
    &schema::mirror::ALIVE,
    &schema::mirror::LOST_BATCHES_TOTAL,
    &schema::mirror::MALFORMED_BATCHES_TOTAL,
    &schema::mirror::FACTS_REFUSED_TOTAL,
    &schema::mirror::CLOCK_OFFSET_SECONDS,
];

/// A running mirror. It stops when it is dropped.
pub(crate) struct Mirrored {
    follower: Follower,
}

impl Mirrored {
    /// Mirrors the topics of all nodes except `own` that match `patterns` into a segment in `dir`.
    ///
    /// # Errors
    /// There are too many patterns; the segment cannot be made; the session is broken.
    pub(crate) fn start(
        plane: &Plane,
        own: &str,
        dir: &Path,
        patterns: &[TopicPattern],
    ) -> Result<Self, Failure> {
        if patterns.len() > MAX_PATTERNS {
            let text = format!("--mirror can be given at most {MAX_PATTERNS} times");
            return Err(Failure::new(text).hint("`*` and `**` match many topics at once"));
        }
        let publisher = Publisher::builder(MIRROR_NAME).dir(dir).node(own);
        let publisher = publisher.max_vertices(MAX_VERTICES).max_bytes(MAX_BYTES).create()?;
        let copy = SegmentCopy {
            own: own.to_owned(),
            publisher,
            vertices: HashMap::new(),
            nodes: HashMap::new(),
        };
        let follower = Follower::start_with(plane, Interest::new(patterns, own), copy);
        let follower =
            follower.map_err(|e| Failure::new("other nodes cannot be mirrored").because(&e))?;
        Ok(Self { follower })
    }

    /// Returns the client that has mirrored facts measured by their nodes.
    pub(crate) fn refresher(&self) -> Refresher {
        self.follower.refresher()
    }
}

/// Writes the mirrored samples into the segment.
struct SegmentCopy {
    own: String,
    publisher: Publisher,
    vertices: HashMap<Topic, VertexWriter>,
    nodes: HashMap<String, NodeFacts>,
}

/// The facts about a mirrored node.
#[derive(Default)]
struct NodeFacts {
    writers: Vec<Option<VertexWriter>>,
    refused: u64,
}

impl SegmentCopy {
    fn refuse(&mut self, topic: &Topic) {
        self.nodes.entry(topic.node().to_owned()).or_default().refused += 1;
    }

    /// Registers vertices for the facts about a node. Facts for which there is no room are left out.
    fn register_node_facts(&self, node: &str) -> Vec<Option<VertexWriter>> {
        let register = |metric: &&Metric| {
            let topic = metric.topic(&self.own, node).ok()?;
            let spec = VertexSpec::new(topic, metric.value_type);
            self.publisher.register(spec.kind(metric.kind).unit(metric.unit)).ok()
        };
        NODE_METRICS.iter().map(register).collect()
    }
}

impl NodeWatcher for SegmentCopy {
    fn node(&mut self, node: &str, state: &NodeState) {
        if self.nodes.get(node).is_none_or(|about| about.writers.is_empty()) {
            let writers = self.register_node_facts(node);
            self.nodes.entry(node.to_owned()).or_default().writers = writers;
        }
        let about = &self.nodes[node];
        let [alive, lost, malformed, refused, offset] = &about.writers[..] else { return };
        let time = now();
        let count = |writer: &Option<VertexWriter>, count: u64| {
            // Our vertices live as long as the segment.
            let _ = writer.as_ref().map(|writer| writer.publish_at(time, count));
        };
        count(alive, u64::from(state.is_alive));
        count(lost, state.mirror.lost());
        count(malformed, state.malformed);
        count(refused, about.refused + state.mirror.refused());
        if let (Some(writer), Some(nanos)) = (offset, state.clock_offset()) {
            let _ = writer.publish_at(time, nanos as f64 / 1e9);
        }
    }
}

impl MirrorWatcher for SegmentCopy {
    fn added(&mut self, description: &Description) {
        let Description { topic, unit, kind, value_type, .. } = description;
        let spec = VertexSpec::new(topic.clone(), *value_type).unit(*unit).kind(*kind);
        match self.publisher.register(spec) {
            Ok(writer) => drop(self.vertices.insert(topic.clone(), writer)),
            Err(_) => self.refuse(topic),
        }
    }

    fn sample(&mut self, topic: &Topic, sample: &Sample) {
        if let Some(writer) = self.vertices.get(topic)
            && writer.publish_sample(sample).is_err()
        {
            self.refuse(topic);
        }
    }

    fn checked(&mut self, topic: &Topic, at: Timestamp) {
        if let Some(writer) = self.vertices.get(topic) {
            let _ = writer.check_at(at);
        }
    }

    fn removed(&mut self, topic: &Topic) {
        if let Some(writer) = self.vertices.remove(topic) {
            self.publisher.unregister(&writer);
        }
    }
}
