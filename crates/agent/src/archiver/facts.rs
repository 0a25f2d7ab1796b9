//! The archiver's own facts: the family `self_history`, in a segment of its own, because the archiver runs on
//! another thread than the agent.

use std::path::Path;

use skopos_model::schema::{self, Metric};
use skopos_model::{Sample, Structured, Topic, Value};
use skopos_shm::Vertex;
use skopos_shm::{Publisher, VertexSpec, VertexWriter, now};

use crate::names::HISTORY_NAME;
use skopos_store::history::{Damage, Merges};
use skopos_term::Failure;

/// Largest number of vertices: room for all of its facts.
const VERTICES: u32 = 16;

/// The counts of the archiver's work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub samples: u64,
    pub lost: u64,
    pub refused: u64,
    pub errors: u64,
    pub torn_bytes: u64,
    pub damaged: u64,
    pub quarantined: u64,
    pub parts: u64,
    pub size_bytes: u64,
    pub merges: Merges,
}

/// The vertices of the archiver's facts.
pub(super) struct Facts {
    publisher: Publisher,
    numbers: [VertexWriter; 13],
    folder: VertexWriter,
    damage: VertexWriter,
}

impl Facts {
    pub(super) fn new(dir: &Path, node: &str) -> Result<Self, Failure> {
        use schema::self_history::{
            DAMAGE, DAMAGED_TOTAL, ERRORS_TOTAL, FOLDER, LOST_TOTAL, MERGE_FAILURES_TOTAL,
            MERGE_READ_BYTES_TOTAL, MERGE_WRITTEN_BYTES_TOTAL, MERGES_TOTAL, PARTS, QUARANTINED,
            REFUSED_TOTAL, SAMPLES_TOTAL, SIZE_BYTES, TORN_BYTES,
        };
        let publisher = Publisher::builder(HISTORY_NAME).dir(dir).node(node);
        let publisher = publisher.max_vertices(VERTICES).create()?;
        let register = |metric: &Metric| -> Result<VertexWriter, Failure> {
            let path = schema::self_history::FAMILY.path;
            let topic: Topic = format!("{node}/{path}/{}", metric.name).parse()?;
            let spec = VertexSpec::new(topic, metric.value_type);
            Ok(publisher.register(spec.kind(metric.kind).unit(metric.unit))?)
        };
        let numbers = [
            register(&SAMPLES_TOTAL)?,
            register(&LOST_TOTAL)?,
            register(&REFUSED_TOTAL)?,
            register(&ERRORS_TOTAL)?,
            register(&TORN_BYTES)?,
            register(&DAMAGED_TOTAL)?,
            register(&QUARANTINED)?,
            register(&PARTS)?,
            register(&SIZE_BYTES)?,
            register(&MERGES_TOTAL)?,
            register(&MERGE_FAILURES_TOTAL)?,
            register(&MERGE_READ_BYTES_TOTAL)?,
            register(&MERGE_WRITTEN_BYTES_TOTAL)?,
        ];
        let (folder, damage) = (register(&FOLDER)?, register(&DAMAGE)?);
        Ok(Self { publisher, numbers, folder, damage })
    }

    /// Publishes the path of the folder.
    pub(super) fn publish_folder(&self, folder: &Path) -> Result<(), Failure> {
        let text = Structured::text(&folder.to_string_lossy());
        self.folder.publish_sample(&Sample::measured(now(), text))?;
        Ok(())
    }

    /// Publishes the last damage.
    pub(super) fn publish_damage(&self, damage: &Damage) {
        // Fails after a step back of the clock; the count of damaged files tells of it, too.
        let text = Structured::text(&damage.to_string());
        let _ = self.damage.publish_sample(&Sample::measured(now(), text));
    }

    pub(super) fn publish(&self, counts: &Counts) {
        let Counts { samples, lost, refused, errors, torn_bytes, .. } = *counts;
        let Counts { damaged, quarantined, parts, size_bytes, merges, .. } = *counts;
        let Merges { done, failed, read_bytes, written_bytes } = merges;
        let values = [
            samples,
            lost,
            refused,
            errors,
            torn_bytes,
            damaged,
            quarantined,
            parts,
            size_bytes,
            done,
            failed,
            read_bytes,
            written_bytes,
        ];
        let time = now();
        for (writer, value) in self.numbers.iter().zip(values) {
            // Fails after a step back of the clock; a later publication succeeds.
            let _ = writer.publish_sample(&Sample::measured(time, Value::U64(value)));
        }
        let _ = self.folder.check_at(time);
        self.publisher.heartbeat();
    }
}

/// Returns the folder of history that a vertex publishes; `None` for vertices of other topics.
pub fn folder_of(vertex: &Vertex) -> Option<std::path::PathBuf> {
    let below = vertex.topic().as_str().split_once('/')?.1;
    let (path, name) = (schema::self_history::FAMILY.path, schema::self_history::FOLDER.name);
    if below.strip_prefix(path)?.strip_prefix('/')? != name {
        return None;
    }
    match vertex.peek().ok()?.sample.value {
        Value::Structured(text) => text.as_json().as_str().map(std::path::PathBuf::from),
        _ => None,
    }
}
