//! Puts what a sensor yields into the agent's segment, and notes it for what is computed from it.

use skopos_model::schema::{self, Metric};
use skopos_model::{Scalar, Structured, ValueType};
use skopos_sense::{FactId, Sink};
use skopos_shm::{Error, Published, Tick, VertexSpec, VertexWriter};

/// Texts and records of sensors say what a thing is, and change by the day if at all.
const STRUCTURED_SLOTS: u32 = 16;

/// What the agent says of itself matters while it is looked at.
const SELF_SLOTS: u32 = 16;

/// What the agent counts of itself; published by `self_facts`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub registered: u64,
    pub unregistered: u64,
    pub stored: u64,
    pub unchanged: u64,
    pub refused: u64,
    pub publish_errors: u64,
    pub clock_steps: u64,
    pub requests: u64,
    pub requests_refused: u64,
    pub insights_run: u64,
}

impl Counts {
    /// Counts what became of a published value.
    pub(crate) fn published(&mut self, done: &Result<Published, Error>) {
        match done {
            Ok(Published::Stored) => self.stored += 1,
            Ok(Published::Unchanged) => self.unchanged += 1,
            Err(_) => self.publish_errors += 1,
        }
    }

    /// Adds what one poll counted.
    pub(crate) fn add(&mut self, poll: &Self) {
        self.registered += poll.registered;
        self.unregistered += poll.unregistered;
        self.stored += poll.stored;
        self.unchanged += poll.unchanged;
        self.refused += poll.refused;
        self.publish_errors += poll.publish_errors;
    }
}

/// What one poll yielded, by the index of the fact in its sensor's table. Kept for its memory.
#[derive(Debug, Default)]
pub(crate) struct Yielded {
    /// Facts that came and went, in order: the place of one that went is used again.
    pub changes: Vec<Change>,
    /// Numbers.
    pub numbers: Vec<(u32, Scalar)>,
    /// Texts, lists and records.
    pub structured: Vec<(u32, Structured)>,
}

/// A fact came or went.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Came(u32, &'static Metric),
    Went(u32),
}

impl Yielded {
    pub(crate) fn clear(&mut self) {
        self.changes.clear();
        self.numbers.clear();
        self.structured.clear();
    }
}

/// One tick of one sensor's group.
pub(crate) struct SegmentSink<'a> {
    tick: Tick<'a>,
    facts: &'a mut Vec<Option<VertexWriter>>,
    node: &'a str,
    yielded: &'a mut Yielded,
    counts: Counts,
    refusal: Option<String>,
}

impl<'a> SegmentSink<'a> {
    pub(crate) fn new(
        tick: Tick<'a>,
        facts: &'a mut Vec<Option<VertexWriter>>,
        node: &'a str,
        yielded: &'a mut Yielded,
    ) -> Self {
        Self { tick, facts, node, yielded, counts: Counts::default(), refusal: None }
    }

    /// Ends the tick: what was counted, and the first reason for which a fact was refused in it.
    pub(crate) fn finish(self) -> (Counts, Option<String>) {
        (self.counts, self.refusal)
    }

    fn try_register(&self, metric: &Metric, instance: &str) -> Result<VertexWriter, Error> {
        let topic = metric.topic(self.node, instance)?;
        let spec = VertexSpec::new(topic, metric.value_type).kind(metric.kind).unit(metric.unit);
        let is_self = metric.path.split('/').next() == Some(schema::self_::FAMILY.path);
        self.tick.register(match metric.value_type {
            ValueType::Structured => spec.slots(STRUCTURED_SLOTS),
            _ if is_self => spec.slots(SELF_SLOTS),
            _ => spec,
        })
    }
}

impl Sink for SegmentSink<'_> {
    fn register(&mut self, metric: &'static Metric, instance: &str) -> FactId {
        let writer = match self.try_register(metric, instance) {
            Ok(writer) => writer,
            Err(e) => {
                self.counts.refused += 1;
                self.refusal.get_or_insert_with(|| e.to_string());
                return FactId::REFUSED;
            }
        };
        // The place of a fact that went is used again, so that disks which come and go for ever do
        // not make the table grow.
        let index = self.facts.iter().position(Option::is_none).unwrap_or_else(|| {
            self.facts.push(None);
            self.facts.len() - 1
        });
        let Ok(id) = u32::try_from(index) else { return FactId::REFUSED };
        self.facts[index] = Some(writer);
        self.counts.registered += 1;
        self.yielded.changes.push(Change::Came(id, metric));
        FactId::from_index(id)
    }

    fn unregister(&mut self, id: FactId) {
        let Some(index) = id.index() else { return };
        if let Some(writer) = self.facts.get_mut(index as usize).and_then(Option::take) {
            self.tick.unregister(&writer);
            self.counts.unregistered += 1;
            self.yielded.changes.push(Change::Went(index));
        }
    }

    fn set(&mut self, id: FactId, value: Scalar) {
        let Some(index) = id.index() else { return };
        if let Some(Some(writer)) = self.facts.get(index as usize) {
            let done = self.tick.publish(writer, value);
            self.counts.published(&done);
            self.yielded.numbers.push((index, value));
        }
    }

    fn set_structured(&mut self, id: FactId, value: &Structured) {
        let Some(index) = id.index() else { return };
        if let Some(Some(writer)) = self.facts.get(index as usize) {
            let done = self.tick.publish_structured(writer, value);
            self.counts.published(&done);
            self.yielded.structured.push((index, value.clone()));
        }
    }
}
