//! What one publisher told, as it stands: its vertices, their latest values and their recent past.

use std::collections::{HashMap, HashSet, VecDeque};

use skopos_model::{Sample, Timestamp, Topic};

use crate::batch::{Batch, Description};

/// Samples of each vertex that are kept: some seconds to minutes of what changes, in 40 bytes each.
/// What is older is in the history on disk.
const RECENT: usize = 32;

/// The most vertices that one publisher may have here: as many as a segment has at the most. Bounds
/// what a hostile one can make a hub keep.
const MAX_VERTICES: usize = 65_536;

/// The vertices of one publisher.
#[derive(Debug, Default)]
pub struct Mirror {
    vertices: HashMap<u32, Vertex>,
    by_topic: HashMap<Topic, u32>,
    /// Of the last batch that was taken in; `None` before the first snapshot.
    sequence: Option<u64>,
    /// A snapshot as of this batch or a later one is needed: what was before it is missing.
    needs: Option<u64>,
    /// Indices that went since the last snapshot that had everything. A publisher gives none twice.
    gone: HashSet<u32>,
    /// Batches that never came.
    lost: u64,
    /// Samples and descriptions that could not be taken in.
    refused: u64,
}

/// One vertex.
#[derive(Clone, Debug)]
pub struct Vertex {
    /// What it is.
    pub description: Description,
    /// Its recent samples, the oldest first.
    pub recent: VecDeque<Sample>,
    /// When its source was last looked at.
    pub checked_at: Timestamp,
    /// The batch that described it.
    since: u64,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is in the mirror.
    In,
    /// It was in the mirror already.
    Known,
    /// This many before it are missing: a snapshot is needed. It is in the mirror as far as it can be.
    Gap(u64),
    /// There was no snapshot yet.
    TooEarly,
}

impl Mirror {
    /// Takes in the next batch.
    pub fn take(&mut self, batch: Batch) -> Taken {
        let Some(last) = self.sequence else { return Taken::TooEarly };
        if batch.sequence <= last {
            return Taken::Known;
        }
        let missing = batch.sequence - last - 1;
        self.sequence = Some(batch.sequence);
        self.lost += missing;
        if missing > 0 {
            self.needs = Some(batch.sequence - 1);
        }
        self.apply(batch);
        if missing == 0 { Taken::In } else { Taken::Gap(missing) }
    }

    /// Takes in a snapshot: all that there is, in one or more batches of one sequence.
    pub fn reset(&mut self, parts: Vec<Batch>) {
        let Some(first) = parts.first() else { return };
        // Batches may have overtaken it. What they said is newer, and stays.
        let as_of = first.sequence;
        let last = self.sequence.map_or(as_of, |last| last.max(as_of));
        self.sequence = Some(last);
        if self.needs.is_some_and(|needed| needed <= as_of) {
            self.needs = None;
        }
        let described: HashMap<u32, &Topic> = parts
            .iter()
            .flat_map(|part| &part.described)
            .map(|description| (description.index, &description.topic))
            .collect();
        let is_other = |(index, vertex): (&u32, &Vertex)| {
            let known = described.get(index).copied() == Some(&vertex.description.topic)
                || vertex.since > as_of;
            (!known).then_some(*index)
        };
        let gone: Vec<u32> = self.vertices.iter().filter_map(is_other).collect();
        gone.into_iter().for_each(|index| self.forget(index));
        if last == as_of {
            self.gone.clear();
        }
        parts.into_iter().for_each(|part| self.apply(part));
    }

    fn apply(&mut self, batch: Batch) {
        for description in batch.described {
            if !self.gone.contains(&description.index) {
                self.describe(description, batch.sequence);
            }
        }
        for told in batch.samples {
            let Some(vertex) = self.vertices.get_mut(&told.index) else {
                self.refused += 1;
                continue;
            };
            let Some(value) = told.value.value(vertex.description.value_type) else {
                self.refused += 1;
                continue;
            };
            vertex.checked_at = vertex.checked_at.max(told.time);
            // A snapshot repeats what is known; times of one vertex never go back.
            if vertex.recent.back().is_some_and(|last| last.time >= told.time) {
                continue;
            }
            if vertex.recent.len() == RECENT {
                vertex.recent.pop_front();
            }
            vertex.recent.push_back(Sample { time: told.time, value, origin: told.origin });
        }
        for checked in batch.checked {
            for (first, length) in checked.runs {
                for index in first..first.saturating_add(length) {
                    if let Some(vertex) = self.vertices.get_mut(&index) {
                        vertex.checked_at = vertex.checked_at.max(checked.at);
                    }
                }
            }
        }
        for index in batch.gone {
            self.forget(index);
            self.gone.insert(index);
            if self.gone.len() > MAX_VERTICES {
                // A new snapshot makes an end of remembering them.
                self.needs = self.sequence;
            }
        }
    }

    fn describe(&mut self, description: Description, since: u64) {
        if self.vertices.len() == MAX_VERTICES && !self.vertices.contains_key(&description.index) {
            self.refused += 1;
            return;
        }
        let known = self.vertices.get(&description.index);
        if known.is_some_and(|vertex| vertex.description == description) {
            return;
        }
        let index = description.index;
        self.forget(index);
        self.by_topic.insert(description.topic.clone(), index);
        let (recent, checked_at) = (VecDeque::new(), Timestamp::default());
        self.vertices.insert(index, Vertex { description, recent, checked_at, since });
    }

    fn forget(&mut self, index: u32) {
        let Some(vertex) = self.vertices.remove(&index) else { return };
        // Another index may have the topic by now.
        if self.by_topic.get(&vertex.description.topic) == Some(&index) {
            self.by_topic.remove(&vertex.description.topic);
        }
    }

    /// The vertex of a topic.
    pub fn find(&self, topic: &Topic) -> Option<&Vertex> {
        self.vertices.get(self.by_topic.get(topic)?)
    }

    /// The vertices, in no order.
    pub fn vertices(&self) -> impl ExactSizeIterator<Item = &Vertex> {
        self.vertices.values()
    }

    /// Batches that never came.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Samples and descriptions that could not be taken in.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// True if nothing is missing; else a snapshot is needed.
    pub fn is_whole(&self) -> bool {
        self.sequence.is_some() && self.needs.is_none()
    }
}
