//! HistoryResponder who asks what this node has kept: what `kept` shows, in batches.

use std::path::PathBuf;

use skopos_model::{Kind, Topic, Unit, ValueType};
use skopos_shm::Host;
use skopos_wire::{
    Batch, Description, HistoryResponder, IndexedSample, MAX_BATCH_BYTES, Plane, Question,
};

use crate::kept::Kept;
use crate::published::published_here;
use skopos_term::Failure;

/// Answers whoever asks what `node` has kept, for as long as the result is there.
///
/// # Errors
/// The directory cannot be read; the plane is broken.
pub(crate) fn answer(
    plane: &Plane,
    node: &str,
    incarnation: i64,
    dir: PathBuf,
) -> Result<HistoryResponder, Failure> {
    let kept = Kept::new(published_here(Host::open_dirs(vec![dir])?));
    let name = node.to_owned();
    let answer = move |question: &Question, send: &mut dyn FnMut(&Batch)| {
        let mut answer = Answer::new(&name, question, send);
        let is_shown = kept.show(&mut answer);
        answer.end() && is_shown
    };
    let answering = plane.answer_history(node, incarnation, answer);
    answering.map_err(|e| Failure::new("the node cannot answer").because(&e))
}

/// An answer under way.
pub struct Answer<'a> {
    node: &'a str,
    pub question: &'a Question,
    send: &'a mut dyn FnMut(&Batch),
    batch: Batch,
    bytes: usize,
    samples: u64,
    is_whole: bool,
    /// Of the series that was described last.
    index: Option<u32>,
}

impl<'a> Answer<'a> {
    pub fn new(node: &'a str, question: &'a Question, send: &'a mut dyn FnMut(&Batch)) -> Self {
        let (batch, bytes) = (Batch::default(), Batch::default().most_bytes());
        Self { node, question, send, batch, bytes, samples: 0, is_whole: true, index: None }
    }

    /// Returns true if the question is about this topic, by the name that it has on this machine.
    pub(crate) fn is_wanted(&self, topic: &Topic) -> bool {
        full(topic, self.node).is_some_and(|topic| self.wants(&topic))
    }

    fn wants(&self, topic: &Topic) -> bool {
        let Question { topics, starts, .. } = self.question;
        topics.iter().any(|wanted| wanted == topic.as_str())
            || starts.iter().any(|start| topic.as_str().starts_with(start.as_str()))
    }

    /// What follows is a series of this topic, by whatever name it has here. False if nobody asked for it.
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
            let one = Batch { described: vec![description], ..Batch::default() };
            self.make_room(one.most_bytes());
            self.batch.described.extend(one.described);
        }
        is_wanted
    }

    /// The next sample of the series that was begun; its index is given here. False when it is enough.
    pub fn add(&mut self, told: IndexedSample) -> bool {
        if self.samples == self.question.most {
            self.is_whole = false;
            return false;
        }
        self.samples += 1;
        let told = IndexedSample { index: self.index.unwrap_or_default(), ..told };
        let one = Batch { samples: vec![told], ..Batch::default() };
        self.make_room(one.most_bytes());
        self.batch.samples.extend(one.samples);
        true
    }

    /// Sends what was not sent yet. Whether all came that was asked for.
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

/// A topic as others know it.
fn full(topic: &Topic, node: &str) -> Option<Topic> {
    match topic.node() == node {
        true => Some(topic.clone()),
        false => Topic::new(&format!("{node}/{topic}")).ok(),
    }
}
