//! Puts what a sensor yields into the agent's segment.

use skopos_model::schema::Metric;
use skopos_model::{Scalar, Structured, ValueType};
use skopos_sense::{FactId, Sink};
use skopos_shm::{Error, Published, Publisher, Tick, VertexSpec, VertexWriter};

/// Texts and records of sensors say what a thing is, and change by the day if at all.
const STRUCTURED_SLOTS: u32 = 16;

/// What the agent counts of itself; published by `self_facts`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) facts: u64,
    pub(crate) stored: u64,
    pub(crate) unchanged: u64,
    pub(crate) refused: u64,
    pub(crate) publish_errors: u64,
    pub(crate) clock_steps: u64,
    pub(crate) requests: u64,
    pub(crate) requests_refused: u64,
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
}

/// One tick of one sensor's group.
pub(crate) struct SegmentSink<'a> {
    publisher: &'a Publisher,
    tick: Tick<'a>,
    facts: &'a mut Vec<Option<VertexWriter>>,
    node: &'a str,
    counts: &'a mut Counts,
    refusal: Option<String>,
}

impl<'a> SegmentSink<'a> {
    pub(crate) fn new(
        publisher: &'a Publisher,
        tick: Tick<'a>,
        facts: &'a mut Vec<Option<VertexWriter>>,
        node: &'a str,
        counts: &'a mut Counts,
    ) -> Self {
        Self { publisher, tick, facts, node, counts, refusal: None }
    }

    /// Ends the tick; the first reason for which a fact was refused in it.
    pub(crate) fn finish(self) -> Option<String> {
        self.refusal
    }

    fn try_register(&self, metric: &Metric, instance: &str) -> Result<VertexWriter, Error> {
        let topic = metric.topic(self.node, instance)?;
        let spec = VertexSpec::new(topic, metric.value_type).kind(metric.kind).unit(metric.unit);
        self.tick.register(match metric.value_type {
            ValueType::Structured => spec.slots(STRUCTURED_SLOTS),
            _ => spec,
        })
    }
}

impl Sink for SegmentSink<'_> {
    fn register(&mut self, metric: &'static Metric, instance: &str) -> FactId {
        match self.try_register(metric, instance) {
            Ok(writer) => {
                self.counts.facts += 1;
                // The place of a fact that went is used again, so that disks which come and go
                // for ever do not make the table grow.
                let index = self.facts.iter().position(Option::is_none).unwrap_or_else(|| {
                    self.facts.push(None);
                    self.facts.len() - 1
                });
                self.facts[index] = Some(writer);
                u32::try_from(index).map_or(FactId::REFUSED, FactId::from_index)
            }
            Err(e) => {
                self.counts.refused += 1;
                self.refusal.get_or_insert_with(|| e.to_string());
                FactId::REFUSED
            }
        }
    }

    fn unregister(&mut self, id: FactId) {
        let slot = id.index().and_then(|index| self.facts.get_mut(index as usize));
        if let Some(writer) = slot.and_then(Option::take) {
            self.publisher.unregister(&writer);
            self.counts.facts -= 1;
        }
    }

    fn set(&mut self, id: FactId, value: Scalar) {
        let writer = id.index().and_then(|index| self.facts.get(index as usize)?.as_ref());
        if let Some(writer) = writer {
            let done = self.tick.publish(writer, value);
            self.counts.published(&done);
        }
    }

    fn set_structured(&mut self, id: FactId, value: &Structured) {
        let writer = id.index().and_then(|index| self.facts.get(index as usize)?.as_ref());
        if let Some(writer) = writer {
            let done = self.tick.publish_structured(writer, value);
            self.counts.published(&done);
        }
    }
}
