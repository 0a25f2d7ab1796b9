//! The vertices of a mirror, which are found by index and by topic.
//!
//! A hub has millions of vertices, so they lie side by side in a list. Two tables have the place of each vertex in the
//! list, in four bytes, and no copy of its index or topic.

use std::hash::{BuildHasher as _, RandomState};

use skopos_model::{Timestamp, Topic};

use crate::batch::Description;
use crate::completeness::Completeness;
use crate::recent::Recent;

/// A vertex of a mirror.
#[derive(Clone, Debug)]
pub struct Vertex {
    /// Its description.
    pub description: Description,
    /// Its recent samples.
    pub recent: Recent,
    /// Number of samples that were ever taken in, with those that are no longer among the recent ones.
    pub samples_total: u64,
    /// Time at which its source was last read.
    pub checked_at: Timestamp,
    /// Number of the batch that described it.
    pub(crate) since: u64,
    pub(crate) completeness: Completeness,
}

impl Vertex {
    /// Returns the time from which each published sample is among the recent ones, by the publisher's
    /// clock; `None` if the latest sample may be missing.
    pub fn complete_since(&self) -> Option<Timestamp> {
        self.completeness.since(self.recent.first_time())
    }
}

/// Vertices with different indices and topics.
#[derive(Debug, Default)]
pub(crate) struct Vertices {
    all: Vec<Vertex>,
    by_index: Places,
    by_topic: Places,
    hasher: RandomState,
}

/// Places of vertices in a list, by a hash: a table with linear probing.
#[derive(Debug, Default)]
struct Places {
    /// A place plus one each, or 0. The length is 0 or a power of two.
    slots: Vec<u32>,
}

/// The part of a table that is in use at most, in eighths: probes stay short.
const FULL: usize = 6;

/// The least length of a table.
const LEAST: usize = 8;

/// The list grows by this part of its length, and by this number at least, so that little of it is unused.
const GROWTH: usize = 16;

impl Vertices {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the vertex with this index.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Vertex> {
        self.all.get(self.place(index)?)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Vertex> {
        let place = self.place(index)?;
        self.all.get_mut(place)
    }

    /// Returns the vertex of this topic.
    // Hot: called for each topic of a point read.
    #[inline]
    pub(crate) fn find(&self, topic: &Topic) -> Option<&Vertex> {
        let is = |place: usize| self.all[place].description.topic == *topic;
        self.all.get(self.by_topic.find(self.hasher.hash_one(topic), is)?.1)
    }

    /// Returns all vertices, in any order.
    #[inline]
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Vertex> {
        self.all.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Vertex> {
        self.all.iter_mut()
    }

    /// Adds a vertex. No other has its index or its topic.
    pub(crate) fn insert(&mut self, vertex: Vertex) {
        let Self { all, by_index, by_topic, hasher } = self;
        if all.len() == all.capacity() {
            all.reserve_exact((all.len() / GROWTH).max(GROWTH));
        }
        let place = all.len();
        all.push(vertex);
        by_index.insert(place, |place| hasher.hash_one(all[place].description.index));
        by_topic.insert(place, |place| hasher.hash_one(&all[place].description.topic));
    }

    /// Removes the vertex with this index, and returns it.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Vertex> {
        let place = self.place(index)?;
        let Self { all, by_index, by_topic, hasher } = self;
        // The last vertex gets its place.
        let last = all.len() - 1;
        by_index.remove(place, last, |place| hasher.hash_one(all[place].description.index));
        by_topic.remove(place, last, |place| hasher.hash_one(&all[place].description.topic));
        Some(all.swap_remove(place))
    }

    #[inline]
    fn place(&self, index: u32) -> Option<usize> {
        let is = |place: usize| self.all[place].description.index == index;
        self.by_index.find(self.hasher.hash_one(index), is).map(|(_, place)| place)
    }
}

impl Places {
    /// Returns the slot and the place of the vertex with this hash for which `is` returns true.
    #[inline]
    fn find(&self, hash: u64, is: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut slot = hash as usize & mask;
        // Some slots are empty, so the loop ends.
        loop {
            let place = self.slots[slot].checked_sub(1)? as usize;
            if is(place) {
                return Some((slot, place));
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Adds the place of the last vertex; `hash` returns the hash of the vertex at a place.
    fn insert(&mut self, last: usize, hash: impl Fn(usize) -> u64) {
        if (last + 1) * 8 > self.slots.len() * FULL {
            self.slots = vec![0; (2 * self.slots.len()).max(LEAST)];
            (0..last).for_each(|place| self.put(place, hash(place)));
        }
        self.put(last, hash(last));
    }

    fn put(&mut self, place: usize, hash: u64) {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot] != 0 {
            slot = (slot + 1) & mask;
        }
        // A mirror has at most as many vertices as a segment: few bits.
        self.slots[slot] = place as u32 + 1;
    }

    /// Removes a place, and gives it to the vertex at the place `last`; `hash` returns the hash of the vertex at a place.
    fn remove(&mut self, place: usize, last: usize, hash: impl Fn(usize) -> u64) {
        if let Some((slot, _)) = self.find(hash(place), |found| found == place) {
            self.clear(slot, &hash);
        }
        if let Some((slot, _)) = self.find(hash(last), |found| found == last) {
            self.slots[slot] = place as u32 + 1;
        }
    }

    /// Empties a slot, and moves later places of its run back, so that no search ends at the empty slot too early.
    fn clear(&mut self, slot: usize, hash: impl Fn(usize) -> u64) {
        let mask = self.slots.len() - 1;
        let (mut hole, mut slot) = (slot, slot);
        loop {
            slot = (slot + 1) & mask;
            let Some(place) = self.slots[slot].checked_sub(1) else { break };
            let first = hash(place as usize) as usize & mask;
            if slot.wrapping_sub(first) & mask >= slot.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[slot];
                hole = slot;
            }
        }
        self.slots[hole] = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use skopos_model::{Kind, Unit, ValueType};

    use super::*;

    fn vertex(index: u32) -> Vertex {
        let topic = Topic::new(&format!("n/{index}")).expect("a topic");
        let (unit, kind, value_type) = (Unit::NONE, Kind::Gauge, ValueType::U64);
        Vertex {
            description: Description { index, topic, unit, kind, value_type },
            recent: Recent::new(value_type),
            samples_total: 0,
            checked_at: Timestamp::default(),
            since: 0,
            completeness: Completeness::new(Timestamp::default()),
        }
    }

    proptest! {
        #[test]
        fn vertices_are_found_by_index_and_by_topic_until_they_are_removed(
            steps in prop::collection::vec((any::<bool>(), 0u32..60), 0..400),
        ) {
            let mut vertices = Vertices::default();
            let mut there = std::collections::BTreeSet::new();
            for (is_added, index) in steps {
                if is_added && there.insert(index) {
                    vertices.insert(vertex(index));
                } else if !is_added {
                    let removed = vertices.remove(index).map(|vertex| vertex.description.index);
                    prop_assert_eq!(removed, there.remove(&index).then_some(index));
                }
                prop_assert_eq!(vertices.len(), there.len());
                for index in 0..60 {
                    let topic = vertex(index).description.topic;
                    let found = [vertices.get(index), vertices.find(&topic)];
                    let expected = there.contains(&index).then_some(index);
                    prop_assert_eq!(
                        found.map(|found| found.map(|vertex| vertex.description.index)),
                        [expected; 2]
                    );
                }
            }
            let all: std::collections::BTreeSet<u32> =
                vertices.iter().map(|vertex| vertex.description.index).collect();
            prop_assert_eq!(all, there);
        }
    }
}
