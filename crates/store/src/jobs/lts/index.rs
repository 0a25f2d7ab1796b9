//! The index of the parts: the segments that may have each job.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use skopos_model::job::JobId;

use crate::jobs::segment::PartInfo;

/// The place of a segment among those that this process knows. Later segments have higher ones.
pub(super) type Slot = u64;

/// All parts of all segments, by a fingerprint of their job: 24 bytes a part, so a million parts take some 40 MB. Ids
/// are compared in the segment itself.
#[derive(Debug, Default)]
pub(super) struct Index(BTreeSet<(u64, u32, Slot)>);

fn fingerprint(id: &JobId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

impl Index {
    /// Adds the parts of a segment.
    pub(super) fn add(&mut self, slot: Slot, parts: &[PartInfo]) {
        self.0.extend(parts.iter().map(|part| (fingerprint(&part.id), part.number, slot)));
    }

    /// Removes the parts of segments, which takes a look at every part.
    pub(super) fn remove(&mut self, slots: &BTreeSet<Slot>) {
        self.0.retain(|(.., of)| !slots.contains(of));
    }

    /// Returns the places that may have a part of the job, with the number of the part: by number, later segments first.
    pub(super) fn find(&self, id: &JobId) -> Vec<(u32, Slot)> {
        let job = fingerprint(id);
        let all = self.0.range((job, 0, 0)..=(job, u32::MAX, Slot::MAX));
        let mut found: Vec<(u32, Slot)> = all.map(|(_, number, slot)| (*number, *slot)).collect();
        found.sort_by_key(|(number, slot)| (*number, std::cmp::Reverse(*slot)));
        found
    }

    /// Returns the places that may have one part, later segments first.
    pub(super) fn find_part(&self, id: &JobId, number: u32) -> Vec<Slot> {
        let job = fingerprint(id);
        let all = self.0.range((job, number, 0)..=(job, number, Slot::MAX));
        all.rev().map(|(.., slot)| *slot).collect()
    }

    /// Returns the segments that may have a part that a later segment has, too.
    pub(super) fn repeated(&self) -> BTreeSet<Slot> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        let same = pairs.filter(|(a, b)| (a.0, a.1) == (b.0, b.1));
        same.map(|(earlier, _)| earlier.2).collect()
    }

    /// Returns the number of parts.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
