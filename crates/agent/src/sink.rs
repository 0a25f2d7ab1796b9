//! Writes the values of a sensor into the agent's segment, and collects them for insights.

use skopos_model::schema::{self, Metric};
use skopos_model::{Scalar, Structured, ValueType};
use skopos_sense::{FactId, Sink};
use skopos_shm::{Error, Published, Tick, VertexSpec, VertexWriter};

/// Ring length of texts and records: sensors use them for properties, which change rarely.
const STRUCTURED_SLOTS: u32 = 16;

/// Ring length of the agent's own facts and of ranks, whose past matters little: a thousand candidates have seven
/// thousand facts.
const SHORT_SLOTS: u32 = 16;

/// First segments of the paths of these facts.
const SHORT: [&str; 3] =
    [schema::self_::FAMILY.path, schema::rank::FAMILY.path, schema::rank_profile::FAMILY.path];

/// The agent's counters of its own work; `self_facts` publishes them.
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
    /// Counts the outcome of a publish.
    pub(crate) fn published(&mut self, outcome: &Result<Published, Error>) {
        match outcome {
            Ok(Published::Stored) => self.stored += 1,
            Ok(Published::Unchanged) => self.unchanged += 1,
            Err(_) => self.publish_errors += 1,
        }
    }

    /// Adds the counts of a poll.
    pub(crate) fn add(&mut self, poll: &Self) {
        self.registered += poll.registered;
        self.unregistered += poll.unregistered;
        self.stored += poll.stored;
        self.unchanged += poll.unchanged;
        self.refused += poll.refused;
        self.publish_errors += poll.publish_errors;
    }
}

/// The values of a poll, by the index of the fact in its sensor's table. Polls reuse its memory.
#[derive(Debug, Default)]
pub(crate) struct Yielded {
    /// Facts that were added and removed, in order: the index of a removed fact is used again.
    pub changes: Vec<Change>,
    /// Numbers.
    pub numbers: Vec<(u32, Scalar)>,
    /// Texts, lists and records.
    pub structured: Vec<(u32, Structured)>,
}

/// A fact was added or removed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Added(u32, &'static Metric),
    Removed(u32),
}

impl Yielded {
    pub(crate) fn clear(&mut self) {
        self.changes.clear();
        self.numbers.clear();
        self.structured.clear();
    }
}

/// A tick of the group of a sensor.
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

    /// Ends the tick, and commits it if it `is_whole`. Returns its counts, and the first reason for which a fact was
    /// refused.
    pub(crate) fn finish(self, is_whole: bool) -> (Counts, Option<String>) {
        if is_whole {
            self.tick.commit();
        }
        (self.counts, self.refusal)
    }

    fn try_register(
        &self,
        metric: &Metric,
        value_type: ValueType,
        instance: &str,
    ) -> Result<VertexWriter, Error> {
        let topic = metric.topic(self.node, instance)?;
        let spec = VertexSpec::new(topic, value_type).kind(metric.kind).unit(metric.unit);
        let is_short = metric.path.split('/').next().is_some_and(|first| SHORT.contains(&first));
        self.tick.register(match value_type {
            ValueType::Structured => spec.slots(STRUCTURED_SLOTS),
            _ if is_short => spec.slots(SHORT_SLOTS),
            _ => spec,
        })
    }

    /// Registers a fact, and returns its index; `None` if it was refused.
    fn add(&mut self, metric: &Metric, value_type: ValueType, instance: &str) -> Option<u32> {
        let writer = match self.try_register(metric, value_type, instance) {
            Ok(writer) => writer,
            Err(e) => {
                self.counts.refused += 1;
                self.refusal.get_or_insert_with(|| e.to_string());
                return None;
            }
        };
        // The index of a removed fact is used again, so that disks which come and go do not make the table grow.
        let index = self.facts.iter().position(Option::is_none).unwrap_or_else(|| {
            self.facts.push(None);
            self.facts.len() - 1
        });
        let id = u32::try_from(index).ok()?;
        self.facts[index] = Some(writer);
        self.counts.registered += 1;
        Some(id)
    }
}

impl Sink for SegmentSink<'_> {
    fn register(&mut self, metric: &'static Metric, instance: &str) -> FactId {
        let Some(id) = self.add(metric, metric.value_type, instance) else {
            return FactId::REFUSED;
        };
        self.yielded.changes.push(Change::Added(id, metric));
        FactId::from_index(id)
    }

    // Insights compute with numbers, and detectors watch them: they are not told of lists.
    fn register_list(&mut self, metric: &'static Metric, instance: &str) -> FactId {
        let id = self.add(metric, ValueType::Structured, instance);
        id.map_or(FactId::REFUSED, FactId::from_index)
    }

    fn unregister(&mut self, id: FactId) {
        let Some(index) = id.index() else { return };
        if let Some(writer) = self.facts.get_mut(index as usize).and_then(Option::take) {
            self.tick.unregister(&writer);
            self.counts.unregistered += 1;
            self.yielded.changes.push(Change::Removed(index));
        }
    }

    fn set(&mut self, id: FactId, value: Scalar) {
        let Some(index) = id.index() else { return };
        if let Some(Some(writer)) = self.facts.get(index as usize) {
            let outcome = self.tick.publish(writer, value);
            self.counts.published(&outcome);
            self.yielded.numbers.push((index, value));
        }
    }

    fn set_structured(&mut self, id: FactId, value: &Structured) {
        let Some(index) = id.index() else { return };
        if let Some(Some(writer)) = self.facts.get(index as usize) {
            let outcome = self.tick.publish_structured(writer, value);
            self.counts.published(&outcome);
            self.yielded.structured.push((index, value.clone()));
        }
    }

    fn set_list(&mut self, id: FactId, values: &[Option<Scalar>]) {
        let Some(index) = id.index() else { return };
        if let Some(Some(writer)) = self.facts.get(index as usize) {
            let outcome = self.tick.publish_list(writer, values);
            self.counts.published(&outcome);
        }
    }
}
