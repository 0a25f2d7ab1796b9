//! What is in memory: a node without the query engine reads no history on disk. If it keeps some, an answer
//! that would need it is not whole, and who asked is told that the node is missing.

use std::collections::HashSet;
use std::sync::Mutex;

use skopos_model::unpoisoned;

use skopos_shm::{Host, Segment, Vertex};
use skopos_wire::{Content, IndexedSample};

use crate::live::past::Answer;

/// This machine's samples.
pub(crate) struct Kept(Mutex<Host>);

impl Kept {
    pub(crate) fn new(host: Host) -> Self {
        Self(Mutex::new(host))
    }

    /// Adds what was asked for to its answer. False if there is more, on disk.
    pub(crate) fn show(&self, answer: &mut Answer<'_>) -> bool {
        let mut host = unpoisoned(self.0.lock());
        // What cannot be listed now stays as it was.
        let _ = host.refresh();
        let has_more = host.segments().iter().any(|segment| segment.name() == DISK);
        let mut seen = HashSet::new();
        let mut is_all = true;
        for vertex in host.segments().iter().flat_map(Segment::vertices) {
            // Of several segments that have a topic, the oldest one's.
            if seen.insert(vertex.topic().clone()) {
                match add(&vertex, answer) {
                    Some(is_complete) => is_all &= is_complete || !has_more,
                    None => break,
                }
            }
        }
        is_all
    }
}

/// The segment of whoever keeps history.
const DISK: &str = crate::agent::HISTORY_NAME;

/// Adds the samples of one vertex: whether they are all; `None` when it is enough.
fn add(vertex: &Vertex, answer: &mut Answer<'_>) -> Option<bool> {
    let (info, question) = (vertex.info(), answer.question);
    if !answer.begin(&info.topic, (info.unit, info.kind, info.value_type)) {
        return Some(true);
    }
    // One that is gone has nothing any more.
    let Ok(range) = vertex.range(question.from..=question.to) else { return Some(true) };
    let first = if question.only_last { range.samples.len().saturating_sub(1) } else { 0 };
    for sample in &range.samples[first..] {
        let value = Content::from(&sample.value);
        if !answer.add(IndexedSample { index: 0, time: sample.time, origin: sample.origin, value })
        {
            return None;
        }
    }
    Some(range.complete || question.only_last && !range.samples.is_empty())
}

#[cfg(test)]
mod tests {
    use skopos_model::{Timestamp, Topic, ValueType};
    use skopos_shm::{Publisher, VertexSpec};
    use skopos_wire::{Batch, Question};

    use super::*;

    fn ask(starts: &str, times: (i64, i64), only_last: bool, most: u64) -> Question {
        let at = Timestamp::from_nanos;
        let (from, to, starts) = (at(times.0), at(times.1), vec![starts.to_owned()]);
        Question { topics: Vec::new(), starts, from, to, only_last, most }
    }

    #[test]
    fn a_node_without_the_query_engine_answers_from_memory_and_says_if_that_is_not_all() {
        let dir = tempfile::tempdir().expect("a folder");
        let publisher = Publisher::builder("app").dir(dir.path()).node("n01").create();
        let publisher = publisher.expect("a segment");
        let topic = Topic::new("n01/app/depth").expect("a topic");
        let spec = VertexSpec::new(topic, ValueType::U64).slots(8);
        let writer = publisher.register(spec).expect("a vertex");
        for n in 1..=20 {
            writer.publish_at(Timestamp::from_nanos(n), n as u64).expect("published");
        }
        let host = || Host::open_dirs(vec![dir.path().to_path_buf()]).expect("a host");
        let answer = |question: &Question| {
            let mut values = Vec::new();
            let mut send = |batch: &Batch| {
                values.extend(batch.samples.iter().map(|told| told.time.as_nanos()));
            };
            let mut answer = Answer::new("n01", question, &mut send);
            let is_shown = Kept::new(host()).show(&mut answer);
            let is_whole = answer.end() && is_shown;
            (values, is_whole)
        };
        assert_eq!(answer(&ask("n01/", (15, 17), false, 100)), (vec![15, 16, 17], true));
        assert_eq!(answer(&ask("n01/mem", (15, 17), false, 100)), (vec![], true));
        assert_eq!(answer(&ask("n01/", (15, 17), false, 2)), (vec![15, 16], false), "too many");
        assert_eq!(answer(&ask("n01/app/", (0, 18), true, 100)), (vec![18], true));
        let (all, is_whole) = answer(&ask("n01/", (1, 20), false, 100));
        assert!(all.len() < 20 && is_whole, "what is overwritten nobody has");
        // But where history is kept the disk has it.
        let history = Publisher::builder(DISK).dir(dir.path()).node("n01").create();
        let _history = history.expect("a segment");
        assert_eq!(answer(&ask("n01/", (1, 20), false, 100)), (all, false));
        assert_eq!(answer(&ask("n01/", (15, 20), false, 100)).0.len(), 6);
        assert!(answer(&ask("n01/", (15, 20), false, 100)).1);
    }
}
