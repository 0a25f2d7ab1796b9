//! An answer to a question about the past, in batches.

use skopos_model::{Kind, Topic, Unit, ValueType};
use skopos_wire::{Batch, Description, IndexedSample, MAX_BATCH_BYTES, Question};

/// An answer that is being written.
pub struct Answer<'a> {
    node: &'a str,
    /// The question.
    pub question: &'a Question,
    send: &'a mut dyn FnMut(&Batch),
    batch: Batch,
    bytes: usize,
    samples: u64,
    is_whole: bool,
    /// The index of the current series.
    index: Option<u32>,
}

impl<'a> Answer<'a> {
    /// Begins the answer of `node` to `question`. `send` sends a batch.
    pub fn new(node: &'a str, question: &'a Question, send: &'a mut dyn FnMut(&Batch)) -> Self {
        let (batch, bytes) = (Batch::default(), Batch::default().most_bytes());
        Self { node, question, send, batch, bytes, samples: 0, is_whole: true, index: None }
    }

    /// Returns true if the question is about this topic, in the form that it has on this machine.
    pub(crate) fn is_wanted(&self, topic: &Topic) -> bool {
        full(topic, self.node).is_some_and(|topic| self.wants(&topic))
    }

    fn wants(&self, topic: &Topic) -> bool {
        let Question { topics, starts, .. } = self.question;
        topics.iter().any(|wanted| wanted == topic.as_str())
            || starts.iter().any(|start| topic.as_str().starts_with(start.as_str()))
    }

    /// Begins a series of this topic, with or without the node in front. Returns false if the question is not
    /// about it.
    pub fn begin(
        &mut self,
        topic: &Topic,
        (unit, kind, value_type): (Unit, Kind, ValueType),
    ) -> bool {
        let Some(topic) = full(topic, self.node) else { return false };
        let is_wanted = self.wants(&topic);
        if is_wanted {
            let index = self.index.map_or(0, |index| index + 1);
            self.index = Some(index);
            let description = Description { index, topic, unit, kind, value_type };
            let addition = Batch { described: vec![description], ..Batch::default() };
            self.make_room(addition.most_bytes());
            self.batch.described.extend(addition.described);
        }
        is_wanted
    }

    /// Adds a sample to the current series, and sets its index. Returns false if the answer is full.
    pub fn add(&mut self, sample: IndexedSample) -> bool {
        if self.samples == self.question.most {
            self.is_whole = false;
            return false;
        }
        self.samples += 1;
        let sample = IndexedSample { index: self.index.unwrap_or_default(), ..sample };
        let addition = Batch { samples: vec![sample], ..Batch::default() };
        self.make_room(addition.most_bytes());
        self.batch.samples.extend(addition.samples);
        true
    }

    /// Sends the rest of the answer. Returns true if the answer is complete.
    pub fn end(mut self) -> bool {
        self.flush();
        self.is_whole
    }

    fn make_room(&mut self, bytes: usize) {
        if self.bytes + bytes > MAX_BATCH_BYTES {
            self.flush();
        }
        self.bytes += bytes - Batch::default().most_bytes();
    }

    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = Batch::default().most_bytes();
        if batch != Batch::default() {
            (self.send)(&batch);
        }
    }
}

/// Returns the topic in the form that other nodes use, with the node in front.
pub(crate) fn full(topic: &Topic, node: &str) -> Option<Topic> {
    match topic.node() == node {
        true => Some(topic.clone()),
        false => Topic::new(&format!("{node}/{topic}")).ok(),
    }
}
