//! A copy of one publisher's vertices: their descriptions, latest values and recent samples.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::RangeInclusive;

use skopos_model::{Sample, Timestamp, Topic};

use crate::batch::{Batch, Checked, Description, IndexedSample};
use crate::completeness::{Completeness, Delivery};
use crate::interest::Interest;
use crate::recent::Recent;
use crate::vertices::{Vertex, Vertices};
use crate::watch::MirrorWatcher;

/// The most vertices of one publisher in a mirror: as many as a segment can have. Bounds the memory that
/// a hostile publisher can make a hub use.
const MAX_VERTICES: usize = 65_536;

/// The most memory that the structured values of one publisher take in a mirror, in bytes: some tens of thousands of
/// lists of a few names. A value of 4 KB may take a hundred times as much once it is read, so the number of vertices
/// alone would bound nothing.
const MAX_STRUCTURED_HELD_BYTES: usize = 64 << 20;

/// The memory beyond which a vertex keeps its latest structured value alone: half of the most, so that older values of
/// some vertices leave room for the latest ones of all.
const MAX_OLDER_HELD_BYTES: usize = MAX_STRUCTURED_HELD_BYTES / 2;

/// The vertices of one publisher.
#[derive(Debug, Default)]
pub struct Mirror {
    /// The publisher's node. It may describe topics of this node alone; without a name, any topics.
    node: Option<Box<str>>,
    vertices: Vertices,
    /// Number of the last batch; `None` before the first snapshot.
    sequence: Option<u64>,
    /// Time at which that batch was sent, by its publisher's clock.
    last_sent_at: Option<Timestamp>,
    /// Time from which every topic of the publisher is known here; a removed topic is forgotten.
    topics_since: Option<Timestamp>,
    /// A snapshot as of this batch or a later one is needed, because batches before it are missing.
    needs: Option<u64>,
    /// Indices that were removed since the last snapshot that covered every batch. A publisher uses no
    /// index twice.
    gone: HashSet<u32>,
    /// Indices that had samples while batches were missing, but no description.
    undescribed: HashSet<u32>,
    /// Selects the topics that are kept.
    interest: Interest,
    /// Indices of topics that are not kept.
    unwanted: HashSet<u32>,
    /// Number of batches that never arrived.
    lost: u64,
    /// The batches among them that the last snapshot covers. A batch of these that arrives after all is
    /// not lost.
    overtaken: Option<RangeInclusive<u64>>,
    /// Number of samples and descriptions that could not be taken in.
    refused: u64,
    /// Number of times that a vertex was removed or got its first sample.
    arrangement: u64,
    /// Number of samples that were taken in.
    samples_total: u64,
    /// Indices of the vertices of the last samples, the oldest first; about as many as there are vertices.
    changed: VecDeque<u32>,
    /// Memory that the structured values of all vertices take.
    structured_bytes: usize,
}

/// The effect of a batch on a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    /// The mirror has taken the batch in.
    Applied,
    /// The mirror had the batch already.
    Duplicate,
    /// The mirror has taken the batch in as far as possible, but this many batches before it are
    /// missing: it needs a snapshot.
    Gap(u64),
    /// The mirror ignored the batch, because it has no snapshot yet.
    NoSnapshot,
}

impl Mirror {
    /// Makes an empty mirror that keeps only the topics of `interest`.
    pub fn new(interest: Interest) -> Self {
        Self { interest, ..Self::default() }
    }

    /// Makes an empty mirror of a node, which refuses topics of other nodes.
    pub fn of_node(node: &str, interest: Interest) -> Self {
        Self { node: Some(node.into()), ..Self::new(interest) }
    }

    /// Takes in the next batch.
    pub fn take(&mut self, batch: Batch, watcher: &mut dyn MirrorWatcher) -> BatchOutcome {
        let Some(last) = self.sequence else { return BatchOutcome::NoSnapshot };
        if batch.sequence <= last {
            if self.overtaken.as_ref().is_some_and(|range| range.contains(&batch.sequence)) {
                self.lost -= 1;
                // Batches arrive in order, so those before it will not arrive.
                let end = self.overtaken.as_ref().map_or(0, |range| *range.end());
                self.overtaken = (batch.sequence < end).then(|| batch.sequence + 1..=end);
            }
            return BatchOutcome::Duplicate;
        }
        let missing = batch.sequence - last - 1;
        self.sequence = Some(batch.sequence);
        self.last_sent_at = Some(batch.sent_at);
        self.lost = self.lost.saturating_add(missing);
        if missing > 0 {
            self.needs = Some(batch.sequence - 1);
            let vertices = self.vertices.iter_mut();
            vertices.for_each(|vertex| vertex.completeness.cut(batch.sequence - 1));
        }
        self.apply(batch, Delivery::Batch, watcher);
        if missing == 0 { BatchOutcome::Applied } else { BatchOutcome::Gap(missing) }
    }

    /// Takes in a snapshot: every vertex of the publisher, in one or more batches of one number.
    pub fn reset(&mut self, parts: Vec<Batch>, watcher: &mut dyn MirrorWatcher) {
        let Some(first) = parts.first() else { return };
        let as_of = first.sequence;
        // Batches that did not arrive before the snapshot are lost, although the snapshot covers them.
        if let Some(last) = self.sequence.filter(|last| *last < as_of) {
            self.lost = self.lost.saturating_add(as_of - last);
            // A snapshot before this one may have overtaken batches that are still under way.
            let before = self.overtaken.as_ref().filter(|range| *range.end() == last);
            let start = before.map_or(last + 1, |range| *range.start());
            self.overtaken = Some(start..=as_of);
            self.vertices.iter_mut().for_each(|vertex| vertex.completeness.cut(as_of));
        }
        // Batches may have overtaken the snapshot. Their content is newer, and stays.
        let last = self.sequence.map_or(as_of, |last| last.max(as_of));
        self.sequence = Some(last);
        if last == as_of {
            self.last_sent_at = Some(first.sent_at);
        }
        self.topics_since = self.topics_since.max(Some(first.sent_at));
        if self.needs.is_some_and(|needed| needed <= as_of) {
            self.needs = None;
        }
        self.forget_all_but(&parts, as_of, watcher);
        if last == as_of {
            self.gone.clear();
            self.unwanted.clear();
        }
        // The snapshot has no sample of a vertex without samples, which says as much as a repeated one.
        let empty = self.vertices.iter_mut().filter(|vertex| vertex.recent.last_time().is_none());
        empty.for_each(|vertex| vertex.completeness.mend(as_of));
        let (is_enough, delivery) = (self.needs.is_none(), Delivery::Snapshot { as_of });
        parts.into_iter().for_each(|part| self.apply(part, delivery, watcher));
        if is_enough {
            self.undescribed.clear();
        }
    }

    /// Removes the vertices that a snapshot does not describe, unless a later batch described them.
    fn forget_all_but(&mut self, parts: &[Batch], as_of: u64, watcher: &mut dyn MirrorWatcher) {
        let described: HashMap<u32, &Topic> = parts
            .iter()
            .flat_map(|part| &part.described)
            .map(|description| (description.index, &description.topic))
            .collect();
        let is_other = |vertex: &Vertex| {
            let Description { index, topic, .. } = &vertex.description;
            let known = described.get(index).copied() == Some(topic) || vertex.since > as_of;
            (!known).then_some(*index)
        };
        let gone: Vec<u32> = self.vertices.iter().filter_map(is_other).collect();
        gone.into_iter().for_each(|index| self.forget(index, watcher));
    }

    /// Takes in a publisher's answer to a request: the current state of the topics in `batch`, ahead of
    /// their batches. Returns false if the mirror does not have all of them with the same description.
    pub fn refresh(&mut self, batch: Batch, watcher: &mut dyn MirrorWatcher) -> bool {
        let is_known = |description: &Description| {
            let known = self.vertices.get(description.index);
            known.is_some_and(|vertex| vertex.description == *description)
        };
        if !batch.described.iter().all(is_known) {
            return false;
        }
        self.apply(batch, Delivery::Requested, watcher);
        true
    }

    /// Removes every vertex, because the publisher is another one now. The counts of lost batches and
    /// refused samples stay.
    pub fn clear(&mut self, watcher: &mut dyn MirrorWatcher) {
        let all: Vec<u32> = self.indexed().map(|(index, _)| index).collect();
        all.into_iter().for_each(|index| self.forget(index, watcher));
        let (lost, refused, node) = (self.lost, self.refused, self.node.take());
        let (arrangement, samples_total) = (self.arrangement, self.samples_total);
        let empty = Self::new(self.interest.clone());
        *self = Self { lost, refused, node, arrangement, samples_total, ..empty };
    }

    fn apply(&mut self, batch: Batch, delivery: Delivery, watcher: &mut dyn MirrorWatcher) {
        for description in batch.described {
            if !self.gone.contains(&description.index) {
                self.describe(description, (batch.sequence, batch.sent_at), delivery, watcher);
            }
        }
        batch.samples.into_iter().for_each(|sample| self.push(sample, delivery, watcher));
        batch.checked.iter().for_each(|checked| self.check(checked, watcher));
        for index in batch.gone {
            self.forget(index, watcher);
            self.unwanted.remove(&index);
            if self.gone.len() < MAX_VERTICES {
                self.gone.insert(index);
            } else {
                // The next snapshot clears them.
                self.needs = self.sequence;
            }
        }
    }

    fn check(&mut self, checked: &Checked, watcher: &mut dyn MirrorWatcher) {
        for (first, length) in &checked.runs {
            for index in *first..first.saturating_add(*length) {
                if let Some(vertex) = self.vertices.get_mut(index)
                    && vertex.checked_at < checked.at
                {
                    vertex.checked_at = checked.at;
                    watcher.checked(&vertex.description.topic, checked.at);
                }
            }
        }
    }

    fn push(&mut self, sample: IndexedSample, delivery: Delivery, watcher: &mut dyn MirrorWatcher) {
        let IndexedSample { index, time, origin, value } = sample;
        let Some(vertex) = self.vertices.get_mut(index) else {
            self.refused += u64::from(!self.unwanted.contains(&index));
            let may_come = delivery == Delivery::Batch && self.needs.is_some();
            if may_come && self.undescribed.len() < MAX_VERTICES {
                self.undescribed.insert(index);
            }
            return;
        };
        let Some(value) = value.value(vertex.description.value_type) else {
            self.refused += 1;
            vertex.completeness.cut(self.sequence.unwrap_or_default());
            return;
        };
        vertex.checked_at = vertex.checked_at.max(time);
        let last = vertex.recent.last_time();
        // A snapshot repeats known samples; times of one vertex never go back.
        if last.is_some_and(|last| last >= time) {
            if last == Some(time) {
                vertex.completeness.repeated(time, delivery);
            }
            return;
        }
        let others = self.structured_bytes - vertex.recent.structured_bytes();
        let [latest, all] = [MAX_STRUCTURED_HELD_BYTES, MAX_OLDER_HELD_BYTES]
            .map(|most| most.saturating_sub(others));
        if !vertex.recent.make_room(&value, latest, all) {
            self.refused += 1;
            vertex.completeness.cut(self.sequence.unwrap_or_default());
            return;
        }
        let sample = Sample { time, value, origin };
        watcher.sample(&vertex.description.topic, &sample);
        vertex.samples_total += 1;
        vertex.completeness.received(time, delivery, last.is_none());
        vertex.recent.push(sample);
        self.structured_bytes = others + vertex.recent.structured_bytes();
        self.arrangement += u64::from(last.is_none());
        self.samples_total += 1;
        if self.changed.len() >= self.vertices.len() {
            self.changed.pop_front();
        }
        self.changed.push_back(index);
    }

    /// Adds a vertex, as of a batch and its time of sending. A publisher that describes a known vertex
    /// again in a batch has lost samples before it could send them.
    fn describe(
        &mut self,
        description: Description,
        (since, sent_at): (u64, Timestamp),
        delivery: Delivery,
        watcher: &mut dyn MirrorWatcher,
    ) {
        let index = description.index;
        let known = self.vertices.get_mut(index);
        if let Some(vertex) = known.filter(|vertex| vertex.description == description) {
            if delivery == Delivery::Batch {
                vertex.completeness.cut(since);
            }
            return;
        }
        self.forget(index, watcher);
        if self.node.as_deref().is_some_and(|node| node != description.topic.node()) {
            self.refused += 1;
            return;
        }
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
        // The topic had another index before.
        let before = self.vertices.find(&description.topic).map(|before| before.description.index);
        before.into_iter().for_each(|before| self.forget(before, watcher));
        watcher.added(&description);
        let recent = Recent::new(description.value_type);
        let checked_at = Timestamp::default();
        let mut completeness = Completeness::new(sent_at);
        if delivery != Delivery::Batch {
            if self.undescribed.contains(&index) {
                // It had a sample after this snapshot, which arrived too early: the next snapshot has it.
                self.needs = self.sequence;
            }
            self.needs.into_iter().for_each(|batch| completeness.cut(batch));
        }
        let vertex =
            Vertex { description, recent, samples_total: 0, checked_at, since, completeness };
        self.vertices.insert(vertex);
    }

    fn forget(&mut self, index: u32, watcher: &mut dyn MirrorWatcher) {
        let Some(vertex) = self.vertices.remove(index) else { return };
        self.structured_bytes -= vertex.recent.structured_bytes();
        self.arrangement += 1;
        self.topics_since = self.topics_since.max(self.last_sent_at);
        watcher.removed(&vertex.description.topic);
    }

    /// Returns the vertex of a topic.
    // Hot: called for each topic of a point read, from other crates.
    #[inline]
    pub fn find(&self, topic: &Topic) -> Option<&Vertex> {
        self.vertices.find(topic)
    }

    /// Returns the vertices, in any order.
    #[inline]
    pub fn vertices(&self) -> impl ExactSizeIterator<Item = &Vertex> {
        self.vertices.iter()
    }

    /// Returns the vertices with their indices, in any order.
    pub fn indexed(&self) -> impl Iterator<Item = (u32, &Vertex)> {
        self.vertices.iter().map(|vertex| (vertex.description.index, vertex))
    }

    /// Returns the number of times that a vertex was removed or got its first sample: as long as it stays, the same
    /// vertices have samples.
    pub fn arrangement(&self) -> u64 {
        self.arrangement
    }

    /// Returns the number of samples that were taken in.
    pub fn samples_total(&self) -> u64 {
        self.samples_total
    }

    /// Returns the vertices that have samples since there were `since` of them, some of them repeatedly; `None` if there
    /// were too many since.
    pub fn changed_since(&self, since: u64) -> Option<impl Iterator<Item = (u32, &Vertex)>> {
        let new = usize::try_from(self.samples_total.checked_sub(since)?).ok()?;
        let first = self.changed.len().checked_sub(new)?;
        let changed = self.changed.range(first..);
        Some(changed.filter_map(|index| Some((*index, self.vertices.get(*index)?))))
    }

    /// Returns the time at which the last batch was sent, by its publisher's clock; `None` before the
    /// first snapshot.
    pub fn last_sent_at(&self) -> Option<Timestamp> {
        self.last_sent_at
    }

    /// Returns the time from which every topic that had samples is among the vertices, by the
    /// publisher's clock; `None` while batches are missing.
    pub fn topics_since(&self) -> Option<Timestamp> {
        self.topics_since.filter(|_| self.is_complete())
    }

    /// Returns the number of batches that never arrived.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the number of samples and descriptions that could not be taken in.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns true if no batch is missing; otherwise the mirror needs a snapshot.
    pub fn is_complete(&self) -> bool {
        self.sequence.is_some() && self.needs.is_none()
    }
}
