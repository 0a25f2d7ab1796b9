//! What was sent and what was not, as facts `NODE/self/remote_write/…`.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use skopos_model::schema::{Metric, self_remote_write as of};
use skopos_shm::{Publisher, VertexSpec, VertexWriter};

use super::queue::Queue;
use crate::hub::counts::node;

/// The segment's name, beside that of the agent.
const SEGMENT: &str = "remote-write";

static METRICS: [&Metric; 5] = [
    &of::SAMPLES_SENT_TOTAL,
    &of::SAMPLES_OVERFLOWED_TOTAL,
    &of::SAMPLES_REFUSED_TOTAL,
    &of::RETRIES_TOTAL,
    &of::SAMPLES_WAITING,
];

/// Their vertices.
pub(super) struct Facts {
    publisher: Publisher,
    writers: Vec<VertexWriter>,
}

impl Facts {
    /// Beside the agent of the runtime directory `dir`, whose node they are of; `None` without one.
    pub(super) fn new(dir: &Path) -> Option<Self> {
        let node = node(dir)?;
        let publisher = Publisher::builder(SEGMENT).dir(dir).node(&node).create().ok()?;
        let mut writers = Vec::new();
        for metric in METRICS {
            let spec = VertexSpec::new(metric.topic(&node, "").ok()?, metric.value_type);
            writers.push(publisher.register(spec.kind(metric.kind).unit(metric.unit)).ok()?);
        }
        Some(Self { publisher, writers })
    }

    pub(super) fn publish(&self, queue: &Queue) {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &queue.counts;
        let numbers = [
            now(&counts.sent),
            now(&counts.overflowed),
            now(&counts.refused),
            now(&counts.retries),
            queue.waiting() as u64,
        ];
        for (writer, number) in self.writers.iter().zip(numbers) {
            // A clock that stepped back is waited out.
            let _ = writer.publish(number);
        }
        self.publisher.heartbeat();
    }
}
