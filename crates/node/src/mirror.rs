//! Facts of other nodes in shared memory of this one, for programs that read them like its own.
//!
//! Times, origins and when a source was last looked at are those of the node. A node that dies takes
//! nothing with it: what it told last stays and grows old, and `OWN/mirror/NODE/alive` says that it is gone.

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

/// Vertices that can be mirrored: as many as the live plane takes of one node. A reader opens the segment
/// whole, so it is bounded as a whole.
const MAX_VERTICES: u32 = 65_536;

/// Room for all of them, with rings of the usual length. Taken as it is needed.
const MAX_BYTES: u64 = 512 << 20;

/// Patterns of one mirror. Each topic that comes is tried with each.
const MAX_PATTERNS: usize = 64;

/// Facts about each node.
static ABOUT: [&Metric; 5] = [
    &schema::mirror::ALIVE,
    &schema::mirror::LOST_BATCHES_TOTAL,
    &schema::mirror::MALFORMED_BATCHES_TOTAL,
    &schema::mirror::FACTS_REFUSED_TOTAL,
    &schema::mirror::CLOCK_OFFSET_SECONDS,
];

/// Mirrors until it is dropped.
pub(crate) struct Mirrored {
    follower: Follower,
}

impl Mirrored {
    /// Mirrors what `patterns` match of all nodes but `own` into a segment in `dir`.
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
            let told = format!("--mirror can be given {MAX_PATTERNS} times at most");
            return Err(Failure::new(told).hint("`*` and `**` stand for many topics at once"));
        }
        let publisher = Publisher::builder(MIRROR_NAME).dir(dir).node(own);
        let publisher = publisher.max_vertices(MAX_VERTICES).max_bytes(MAX_BYTES).create()?;
        let copy = Copy {
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

    /// What has facts in the mirror measured anew.
    pub(crate) fn refresher(&self) -> Refresher {
        self.follower.refresher()
    }
}

/// Writes what it hears into the segment.
struct Copy {
    own: String,
    publisher: Publisher,
    vertices: HashMap<Topic, VertexWriter>,
    nodes: HashMap<String, About>,
}

/// What is said of one node.
#[derive(Default)]
struct About {
    writers: Vec<Option<VertexWriter>>,
    refused: u64,
}

impl Copy {
    fn refuse(&mut self, topic: &Topic) {
        self.nodes.entry(topic.node().to_owned()).or_default().refused += 1;
    }

    /// Vertices for the facts about a node. Where there is no room for one, the others are there still.
    fn register_about(&self, node: &str) -> Vec<Option<VertexWriter>> {
        let register = |metric: &&Metric| {
            let topic = metric.topic(&self.own, node).ok()?;
            let spec = VertexSpec::new(topic, metric.value_type);
            self.publisher.register(spec.kind(metric.kind).unit(metric.unit)).ok()
        };
        ABOUT.iter().map(register).collect()
    }
}

impl NodeWatcher for Copy {
    fn node(&mut self, node: &str, state: &NodeState) {
        if self.nodes.get(node).is_none_or(|about| about.writers.is_empty()) {
            let writers = self.register_about(node);
            self.nodes.entry(node.to_owned()).or_default().writers = writers;
        }
        let about = &self.nodes[node];
        let [alive, lost, malformed, refused, offset] = &about.writers[..] else { return };
        let time = now();
        let count = |writer: &Option<VertexWriter>, count: u64| {
            // A vertex of ours goes with the segment, and not before.
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

impl MirrorWatcher for Copy {
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
