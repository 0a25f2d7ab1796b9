//! What one publisher told, as it stands: its vertices, their latest values and their recent past.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use skopos_model::{Sample, Timestamp, Topic};

use crate::batch::{Batch, Description, Told};
use crate::recent::Recent;
use crate::watch::{Interest, Watcher};
use crate::whole::{Way, Whole};

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
    /// When that was sent, by its publisher's clock.
    told_until: Option<Timestamp>,
    /// From when on every topic that its publisher had is known here: one that went is forgotten.
    topics_since: Option<Timestamp>,
    /// A snapshot as of this batch or a later one is needed: what was before it is missing.
    needs: Option<u64>,
    /// Indices that went since the last snapshot that had everything. A publisher gives none twice.
    gone: HashSet<u32>,
    /// Indices that told something while batches were missing, before anything described them.
    strangers: HashSet<u32>,
    /// Which topics are kept, and the indices of those that are not.
    interest: Interest,
    unwanted: HashSet<u32>,
    /// Batches that never came.
    lost: u64,
    /// Those of them that the last snapshot stands for: each may yet come, and is not lost then.
    overtaken: Option<RangeInclusive<u64>>,
    /// Samples and descriptions that could not be taken in.
    refused: u64,
}

/// One vertex.
#[derive(Clone, Debug)]
pub struct Vertex {
    /// What it is.
    pub description: Description,
    /// Its recent samples.
    pub recent: Recent,
    /// Samples that ever were taken in, also those that are no longer among the recent ones.
    pub told: u64,
    /// When its source was last looked at.
    pub checked_at: Timestamp,
    /// The batch that described it.
    since: u64,
    whole: Whole,
}

impl Vertex {
    /// From when on each sample that its publisher told is among the recent ones; `None` if the latest may
    /// be missing. By the publisher's clock.
    pub fn whole_since(&self) -> Option<Timestamp> {
        self.whole.since(self.recent.first_time())
    }
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
    /// Of these topics alone.
    pub fn new(interest: Interest) -> Self {
        Self { interest, ..Self::default() }
    }

    /// Takes in the next batch.
    pub fn take(&mut self, batch: Batch, watcher: &mut dyn Watcher) -> Taken {
        let Some(last) = self.sequence else { return Taken::TooEarly };
        if batch.sequence <= last {
            if self.overtaken.as_ref().is_some_and(|range| range.contains(&batch.sequence)) {
                self.lost -= 1;
                // They come in order, so those before it will not.
                let end = self.overtaken.as_ref().map_or(0, |range| *range.end());
                self.overtaken = (batch.sequence < end).then(|| batch.sequence + 1..=end);
            }
            return Taken::Known;
        }
        let missing = batch.sequence - last - 1;
        self.sequence = Some(batch.sequence);
        self.told_until = Some(batch.sent_at);
        self.lost += missing;
        if missing > 0 {
            self.needs = Some(batch.sequence - 1);
            self.vertices.values_mut().for_each(|vertex| vertex.whole.cut(batch.sequence - 1));
        }
        self.apply(batch, Way::Batch, watcher);
        if missing == 0 { Taken::In } else { Taken::Gap(missing) }
    }

    /// Takes in a snapshot: all that there is, in one or more batches of one sequence.
    pub fn reset(&mut self, parts: Vec<Batch>, watcher: &mut dyn Watcher) {
        let Some(first) = parts.first() else { return };
        let as_of = first.sequence;
        // What came while nobody listened is lost, also if the snapshot makes up for it.
        if let Some(last) = self.sequence.filter(|last| *last < as_of) {
            self.lost += as_of - last;
            self.overtaken = Some(last + 1..=as_of);
            self.vertices.values_mut().for_each(|vertex| vertex.whole.cut(as_of));
        }
        // Batches may have overtaken it. What they said is newer, and stays.
        let last = self.sequence.map_or(as_of, |last| last.max(as_of));
        self.sequence = Some(last);
        if last == as_of {
            self.told_until = Some(first.sent_at);
        }
        self.topics_since = self.topics_since.max(Some(first.sent_at));
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
        gone.into_iter().for_each(|index| self.forget(index, watcher));
        if last == as_of {
            self.gone.clear();
            self.unwanted.clear();
        }
        // One that has no sample is told without any, which says as much as one that is told again.
        let empty = self.vertices.values_mut().filter(|vertex| vertex.recent.last_time().is_none());
        empty.for_each(|vertex| vertex.whole.mend(as_of));
        let (is_enough, way) = (self.needs.is_none(), Way::Snapshot { as_of });
        parts.into_iter().for_each(|part| self.apply(part, way, watcher));
        if is_enough {
            self.strangers.clear();
        }
    }

    /// Takes in what a publisher said when it was asked: the topics of `batch` as they are now, out of
    /// turn. False if any of them is not known here as it is described.
    pub fn freshen(&mut self, batch: Batch, watcher: &mut dyn Watcher) -> bool {
        let is_known = |description: &Description| {
            let known = self.vertices.get(&description.index);
            known.is_some_and(|vertex| vertex.description == *description)
        };
        if !batch.described.iter().all(is_known) {
            return false;
        }
        self.apply(batch, Way::Asked, watcher);
        true
    }

    /// Forgets everything: its publisher is another one now. What it lost stays counted.
    pub fn clear(&mut self, watcher: &mut dyn Watcher) {
        let all: Vec<u32> = self.vertices.keys().copied().collect();
        all.into_iter().for_each(|index| self.forget(index, watcher));
        let (lost, refused) = (self.lost, self.refused);
        *self = Self { lost, refused, ..Self::new(self.interest.clone()) };
    }

    fn apply(&mut self, batch: Batch, way: Way, watcher: &mut dyn Watcher) {
        for description in batch.described {
            if !self.gone.contains(&description.index) {
                self.describe(description, (batch.sequence, batch.sent_at), way, watcher);
            }
        }
        batch.samples.into_iter().for_each(|told| self.tell(told, way, watcher));
        for checked in batch.checked {
            for (first, length) in checked.runs {
                for index in first..first.saturating_add(length) {
                    if let Some(vertex) = self.vertices.get_mut(&index)
                        && vertex.checked_at < checked.at
                    {
                        vertex.checked_at = checked.at;
                        watcher.checked(&vertex.description.topic, checked.at);
                    }
                }
            }
        }
        for index in batch.gone {
            self.forget(index, watcher);
            self.unwanted.remove(&index);
            self.gone.insert(index);
            if self.gone.len() > MAX_VERTICES {
                // A new snapshot makes an end of remembering them.
                self.needs = self.sequence;
            }
        }
    }

    fn tell(&mut self, told: Told, way: Way, watcher: &mut dyn Watcher) {
        let Some(vertex) = self.vertices.get_mut(&told.index) else {
            self.refused += u64::from(!self.unwanted.contains(&told.index));
            let may_come = way == Way::Batch && self.needs.is_some();
            if may_come && self.strangers.len() < MAX_VERTICES {
                self.strangers.insert(told.index);
            }
            return;
        };
        let Some(value) = told.value.value(vertex.description.value_type) else {
            self.refused += 1;
            vertex.whole.cut(self.sequence.unwrap_or_default());
            return;
        };
        vertex.checked_at = vertex.checked_at.max(told.time);
        let last = vertex.recent.last_time();
        // A snapshot repeats what is known; times of one vertex never go back.
        if last.is_some_and(|last| last >= told.time) {
            if last == Some(told.time) {
                vertex.whole.again(told.time, way);
            }
            return;
        }
        let sample = Sample { time: told.time, value, origin: told.origin };
        watcher.told(&vertex.description.topic, &sample);
        vertex.told += 1;
        vertex.whole.came(told.time, way, last.is_none());
        vertex.recent.push(sample);
    }

    /// A vertex is there, as of a batch and the time at which that was sent. One that is described again in
    /// its turn has lost samples before it could tell them.
    fn describe(
        &mut self,
        description: Description,
        (since, sent_at): (u64, Timestamp),
        way: Way,
        watcher: &mut dyn Watcher,
    ) {
        let index = description.index;
        let known = self.vertices.get_mut(&index);
        if let Some(vertex) = known.filter(|vertex| vertex.description == description) {
            if way == Way::Batch {
                vertex.whole.cut(since);
            }
            return;
        }
        self.forget(index, watcher);
        if !self.interest.is_in(&description.topic) {
            if self.unwanted.len() < MAX_VERTICES {
                self.unwanted.insert(index);
            }
            return;
        }
        if self.vertices.len() == MAX_VERTICES {
            self.refused += 1;
            return;
        }
        // A topic that another index has no more.
        if let Some(before) = self.by_topic.get(&description.topic).copied() {
            self.forget(before, watcher);
        }
        self.by_topic.insert(description.topic.clone(), index);
        watcher.came(&description);
        let recent = Recent::new(description.value_type);
        let checked_at = Timestamp::default();
        let mut whole = Whole::new(sent_at);
        if way != Way::Batch {
            if self.strangers.contains(&index) {
                // It told something after this snapshot, which came too early: the next one has it.
                self.needs = self.sequence;
            }
            self.needs.into_iter().for_each(|batch| whole.cut(batch));
        }
        let vertex = Vertex { description, recent, told: 0, checked_at, since, whole };
        self.vertices.insert(index, vertex);
    }

    fn forget(&mut self, index: u32, watcher: &mut dyn Watcher) {
        let Some(vertex) = self.vertices.remove(&index) else { return };
        self.topics_since = self.topics_since.max(self.told_until);
        // Another index may have the topic by now.
        if self.by_topic.get(&vertex.description.topic) == Some(&index) {
            self.by_topic.remove(&vertex.description.topic);
            watcher.went(&vertex.description.topic);
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

    /// When what was taken in last was sent, by its publisher's clock; `None` before the first snapshot.
    pub fn told_until(&self) -> Option<Timestamp> {
        self.told_until
    }

    /// From when on no topic had samples that is not among the vertices, by the publisher's clock; `None`
    /// while batches are missing.
    pub fn topics_since(&self) -> Option<Timestamp> {
        self.topics_since.filter(|_| self.is_whole())
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
