//! The work beside sealing: checks segments, merges small ones, repairs damaged ones, and removes the oldest.

use std::collections::BTreeSet;
use std::time::Duration;

use skopos_model::job::JobId;
use skopos_model::{Timestamp, unpoisoned};

use super::folder::{Lts, Placed};
use super::index::Slot;
use super::sealing::{SEGMENT_BYTES, SEGMENT_PARTS};
use super::state::{Known, list};
use crate::jobs::segment::{Segment, SegmentName};
use crate::log::{self, Damage, Error, io_at};

/// A segment with fewer parts is small. A merged segment has more, so a part is written twice at most.
const SMALL_PARTS: usize = SEGMENT_PARTS / 2;

/// The most small segments, beyond which they are merged although they have few parts together. Each costs a job's
/// reader a look at its metadata, and DuckDB a file.
const MAX_SMALL: usize = 64;

/// Time that the pause between the ends of two segments counts for, at most: a clock that is set years ahead must not make
/// all segments old.
const MAX_STEP: Duration = Duration::from_secs(86_400);

/// Limits of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The longest time since the last record of a segment.
    pub max_age: Duration,
    /// The most bytes of all segments, those in quarantine included.
    pub max_bytes: u64,
}

/// A damaged segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDamage {
    /// The file and its damage.
    pub damage: Damage,
    /// The parts that cannot be read.
    pub lost: Vec<Placed>,
}

/// The changes that chores made. The catalogue follows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Parts that have another place now.
    pub moved: Vec<Placed>,
    /// Parts that do not exist any more.
    pub removed: Vec<Placed>,
    /// Parts of damaged segments whose copies are in place again.
    pub restored: Vec<Placed>,
    /// Segments that do not exist any more.
    pub removed_segments: Vec<String>,
    /// Damaged segments, which were moved aside once their other parts had another place.
    pub damaged: Vec<SegmentDamage>,
    /// Errors of files that cannot be read, written or removed; everything else was done. A later run tries again.
    pub errors: Vec<String>,
}

impl Lts {
    /// Checks every byte of every segment. A damaged one is named, with the parts that cannot be read.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub fn verify(&self) -> Result<Vec<SegmentDamage>, Error> {
        let slots: Vec<Slot> = self.state().segments.keys().copied().collect();
        let mut damaged = Vec::new();
        for slot in slots {
            damaged.extend(self.verify_segment(slot)?);
        }
        Ok(damaged)
    }

    pub(super) fn verify_segment(&self, slot: Slot) -> Result<Option<SegmentDamage>, Error> {
        // Not the metadata in memory: those on the disk may be damaged meanwhile.
        let Some(name) = self.state().segments.get(&slot).map(|it| it.name.file_name()) else {
            return Ok(None);
        };
        let path = self.folder.join(&name);
        let opened = Segment::open_on(&*self.disk, &path);
        let (why, lost) = match opened.and_then(|segment| segment.verify()) {
            Ok(()) => return Ok(None),
            Err(e) if e.is_gone() => return Ok(None),
            Err(e) if e.is_damage() => (e.why(), self.unreadable(slot)?),
            Err(e) => return Err(e),
        };
        let damage = Damage { file: name, why };
        self.note_damage(damage.clone());
        Ok(Some(SegmentDamage { damage, lost }))
    }

    /// Returns the parts of a segment that cannot be read; nothing if its metadata cannot, either, and are not in memory.
    fn unreadable(&self, slot: Slot) -> Result<Vec<Placed>, Error> {
        let segment = match self.segment(slot) {
            Err(e) if e.is_damage() => None,
            opened => opened?,
        };
        let Some(segment) = segment else { return Ok(Vec::new()) };
        let mut lost = Vec::new();
        for part in segment.parts() {
            match segment.read_part(part) {
                Err(e) if e.is_damage() => lost.push(Placed::new(segment.name(), part)),
                read => drop(read?),
            }
        }
        Ok(lost)
    }

    /// Merges small segments into ones of about 500 parts, if there are enough of them.
    pub fn compact(&self, now: Timestamp) -> Changes {
        let _writing = unpoisoned(self.writing.lock());
        let mut changes = Changes::default();
        if let Err(e) = self.catch_up() {
            changes.errors.push(e.to_string());
            return changes;
        }
        for batch in self.batches() {
            if let Err(e) = self.rewrite(&batch, now, &mut changes) {
                changes.errors.push(e.to_string());
            }
        }
        changes
    }

    /// Writes the readable parts of a damaged segment again, and moves the segment aside. The lost parts are named, so
    /// that they are restored from a replica.
    pub fn repair(&self, segment: &str, now: Timestamp) -> Changes {
        let _writing = unpoisoned(self.writing.lock());
        let mut changes = Changes::default();
        let of_name = |known: &Known| known.name.file_name() == segment;
        let found = self.catch_up().map(|()| {
            let state = self.state();
            let found = state.segments.iter().find(|(_, known)| of_name(known));
            found.map(|(slot, _)| *slot)
        });
        let repaired = found.and_then(|slot| match slot {
            Some(slot) => self.rewrite(&[slot], now, &mut changes),
            None => Err(Error::refused(&self.folder.join(segment), &"the segment is not here")),
        });
        changes.errors.extend(repaired.err().map(|e| e.to_string()));
        changes
    }

    /// Returns the small segments that become one each, the oldest first.
    fn batches(&self) -> Vec<Vec<Slot>> {
        let state = self.state();
        let is_small = |known: &Known| known.parts < SMALL_PARTS && known.bytes < SEGMENT_BYTES / 8;
        let small: Vec<_> = state.segments.iter().filter(|(_, known)| is_small(known)).collect();
        let is_many = small.len() > MAX_SMALL;
        let (mut batches, mut batch, mut parts, mut bytes) = (Vec::new(), Vec::new(), 0, 0);
        for (slot, known) in small {
            if parts + known.parts > SEGMENT_PARTS || bytes + known.bytes > SEGMENT_BYTES / 4 {
                batches.push(std::mem::take(&mut batch));
                (parts, bytes) = (0, 0);
            }
            parts += known.parts;
            bytes += known.bytes;
            batch.push(*slot);
        }
        if is_many || parts >= SMALL_PARTS {
            batches.push(batch);
        }
        batches.retain(|batch| batch.len() > 1);
        batches
    }

    /// Writes the parts of segments into a new one, makes it durable, and then removes the old ones. After a crash between
    /// the two, of two equal parts the later one counts, and opening the folder removes the old segments.
    pub(super) fn rewrite(
        &self,
        slots: &[Slot],
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<(), Error> {
        let mut parts: BTreeSet<(JobId, u32)> = BTreeSet::new();
        let mut damaged: Vec<(Slot, SegmentDamage)> = Vec::new();
        for slot in slots {
            let segment = match self.segment(*slot) {
                Err(e) if e.is_damage() => {
                    damaged.extend(self.verify_segment(*slot)?.map(|damage| (*slot, damage)));
                    continue;
                }
                opened => opened?,
            };
            let Some(segment) = segment else { continue };
            if let Some(why) = self.conflict_of(&segment)? {
                return Err(Error::refused(&self.folder.join(segment.name()), &why));
            }
            parts.extend(segment.parts().iter().map(|part| (part.id.clone(), part.number)));
            if let Some(damage) = self.verify_segment(*slot)? {
                damaged.push((*slot, damage));
            }
        }
        // A part that another segment has, too, is not lost.
        let mut lost = BTreeSet::new();
        for (_, damage) in &mut damaged {
            let mut kept = Vec::new();
            for part in std::mem::take(&mut damage.lost) {
                match self.read_part(&part.id, part.part.number) {
                    Err(e) if e.is_damage() => {
                        lost.insert((part.id.clone(), part.part.number));
                        kept.push(part);
                    }
                    read => drop(read?),
                }
            }
            damage.lost = kept;
        }
        let whole = parts.iter().filter(|part| !lost.contains(*part));
        let whole = whole.map(|(id, number)| {
            let gone = || Error::refused(&self.folder, &"a part was removed meanwhile");
            self.read_part(id, *number)?.ok_or_else(gone)
        });
        let sealed = self.last_sealed(slots).unwrap_or(now);
        let written = self.write(whole, sealed)?;
        for segment in &written {
            changes
                .moved
                .extend(segment.parts.iter().map(move |part| Placed::new(&segment.name, part)));
        }
        let is_damaged = |slot| damaged.iter().any(|(of, _)| *of == slot);
        let (gone, removed) = self.remove(slots, is_damaged);
        changes.removed_segments.extend(gone);
        changes.damaged.extend(damaged.into_iter().map(|(_, damage)| damage));
        removed.and_then(|()| self.sync())
    }

    fn last_sealed(&self, slots: &[Slot]) -> Option<Timestamp> {
        let state = self.state();
        let sealed = slots.iter().filter_map(|slot| state.segments.get(slot)).map(|it| it.sealed);
        sealed.max().map(Timestamp::from_nanos)
    }

    /// Removes the oldest segments while they are too old, or all take too much room. Segments in quarantine are as old as
    /// their names say.
    pub fn retain(&self, limits: &Retention, now: Timestamp) -> Changes {
        let _writing = unpoisoned(self.writing.lock());
        let mut changes = Changes::default();
        if let Err(e) = self.catch_up().and_then(|()| self.try_retain(limits, now, &mut changes)) {
            self.state().is_behind = true;
            changes.errors.push(e.to_string());
        }
        changes
    }

    fn try_retain(
        &self,
        limits: &Retention,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<(), Error> {
        let aside = self.folder.join(log::FOLDER);
        // The end of each file, its bytes, and its slot if it is in use.
        let mut files: Vec<(i64, u64, Option<Slot>, String)> = Vec::new();
        for (slot, known) in &self.state().segments {
            // A record of the future makes no segment young.
            let end = known.name.to.min(known.sealed);
            files.push((end, known.bytes, Some(*slot), known.name.file_name()));
        }
        let mut bytes: u64 = files.iter().map(|(_, bytes, ..)| bytes).sum();
        for file in list(&*self.disk, &aside)? {
            bytes += file.bytes;
            let end = SegmentName::parse(&file.name).map(|name| name.to.min(now.as_nanos()));
            files.extend(end.map(|end| (end, file.bytes, None, file.name)));
        }
        files.sort();
        let ends: Vec<i64> = files.iter().map(|(end, ..)| *end).collect();
        for ((_, size, slot, name), age) in files.into_iter().zip(ages(&ends, now)) {
            if age <= limits.max_age && bytes <= limits.max_bytes {
                break;
            }
            match slot {
                Some(slot) => {
                    let gone = self.segment(slot)?;
                    let (names, removed) = self.remove(&[slot], |_| false);
                    changes.removed_segments.extend(names);
                    removed?;
                    let parts = gone.iter().flat_map(|segment| {
                        segment.parts().iter().map(move |part| Placed::new(segment.name(), part))
                    });
                    changes.removed.extend(parts);
                }
                None => {
                    let path = aside.join(&name);
                    self.disk.remove(&path).map_err(io_at(&path, "it cannot be removed"))?;
                    self.forget_damage(&name);
                }
            }
            bytes -= size;
        }
        self.sync()
    }
}

/// Returns the age of each end, which ascend. Each pause between two of them, and that before `now`, counts for a step at
/// most.
fn ages(ends: &[i64], now: Timestamp) -> Vec<Duration> {
    let (mut age, mut later) = (Duration::ZERO, now);
    let mut ages: Vec<Duration> = Vec::with_capacity(ends.len());
    for end in ends.iter().rev() {
        let end = Timestamp::from_nanos(*end);
        age += later.since(end).min(MAX_STEP);
        ages.push(age);
        later = end;
    }
    ages.reverse();
    ages
}
