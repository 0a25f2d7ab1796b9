//! A folder of segments: opening, finding and reading.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use skopos_model::job::{JobId, Kind};
use skopos_model::unpoisoned;

use super::index::Slot;
use super::state::{Opened, State, list};
use crate::jobs::part::{JobPart, Mark, PartRef, StoredRecord};
use crate::jobs::segment::{PartInfo, PartReader, Segment};
use crate::log::{self, Damage, Disk, Error, Lock, OsDisk, io_at};

/// The most looks into the index for segments that compactions remove meanwhile. Compactions are minutes apart.
const ATTEMPTS: usize = 4;

/// Sealed jobs on a local disk. One process writes; its threads may read meanwhile.
#[derive(Debug)]
pub struct Lts {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) folder: PathBuf,
    /// No other process may write to the folder.
    _lock: Lock,
    /// The right to write, which one operation has at a time.
    pub(super) writing: Mutex<()>,
    state: Mutex<State>,
    /// Damaged files that were found.
    pub(super) damaged: Mutex<Vec<Damage>>,
}

/// A part of a job with its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    /// The job.
    pub id: JobId,
    /// The part's place.
    pub part: PartRef,
}

impl Placed {
    pub(super) fn new(segment: &str, part: &PartInfo) -> Self {
        let rows = part.rows.end - part.rows.start;
        let segment = segment.to_owned();
        Self { id: part.id.clone(), part: PartRef { number: part.number, segment, rows } }
    }
}

impl Lts {
    /// Opens a folder, which is made unless it exists. Temporaries that a killed process left are removed, damaged files
    /// are moved aside (see [`damaged`](Self::damaged)), and compactions that a crash interrupted are finished.
    ///
    /// # Errors
    /// Another process writes to the folder, or it cannot be read or written.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Self::on(Arc::new(OsDisk), folder)
    }

    /// Opens a folder on another disk than the operating system's, as [`open`](Self::open) does.
    ///
    /// # Errors
    /// The same as for [`open`](Self::open).
    pub fn on(disk: Arc<dyn Disk>, folder: &Path) -> Result<Self, Error> {
        let made = disk.make_folder(folder);
        made.map_err(io_at(folder, "the folder cannot be made"))?;
        let path = folder.join("lock");
        let lock = disk.lock(&path).map_err(io_at(&path, "it cannot be locked"))?;
        let lock = lock.ok_or_else(|| Error::Busy(folder.to_path_buf()))?;
        let mut state = State::default();
        let mut damaged = state.catch_up(&*disk, folder)?;
        for file in list(&*disk, &folder.join(log::FOLDER))? {
            if !damaged.iter().any(|known| known.file == file.name) {
                damaged.push(Damage { file: file.name, why: "it was moved aside".to_owned() });
            }
        }
        let lts = Self {
            disk,
            folder: folder.to_path_buf(),
            _lock: lock,
            writing: Mutex::default(),
            state: Mutex::new(state),
            damaged: Mutex::new(damaged),
        };
        lts.remove_repeated()?;
        Ok(lts)
    }

    /// Returns the damaged files that were found since the folder was opened, and those in its quarantine.
    pub fn damaged(&self) -> Vec<Damage> {
        let mut damaged = unpoisoned(self.damaged.lock()).clone();
        damaged.sort();
        damaged
    }

    pub(super) fn note_damage(&self, damage: Damage) {
        let mut damaged = unpoisoned(self.damaged.lock());
        if !damaged.contains(&damage) {
            damaged.push(damage);
        }
    }

    /// Forgets a file that was removed from the quarantine.
    pub(super) fn forget_damage(&self, file: &str) {
        unpoisoned(self.damaged.lock()).retain(|damage| damage.file != file);
    }

    /// Returns the number of segments, parts and bytes.
    pub fn size(&self) -> (usize, usize, u64) {
        let state = self.state();
        let bytes = state.segments.values().map(|known| known.bytes).sum();
        (state.segments.len(), state.index.len(), bytes)
    }

    /// Returns the places of the parts of a job, by number. Of a part that a crash left in two segments, the later one
    /// counts.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub fn find(&self, id: &JobId) -> Result<Vec<PartRef>, Error> {
        let found = self.find_in_segments(id)?;
        Ok(found.iter().map(|(segment, part)| Placed::new(segment.name(), part).part).collect())
    }

    /// Returns the records of a job: those of all parts, in the order of their numbers and of their arrival.
    ///
    /// # Errors
    /// A part is damaged, or it cannot be read.
    pub fn read(&self, id: &JobId) -> Result<Vec<StoredRecord>, Error> {
        let mut records = Vec::new();
        for (_, part) in self.find_in_segments(id)? {
            let part = self.read_part(id, part.number)?;
            records.extend(part.into_iter().flat_map(|part| part.records));
        }
        Ok(records)
    }

    /// Returns a part of a job, if it exists. A damaged copy is passed over if a crash left another one.
    ///
    /// # Errors
    /// The part is damaged, or it cannot be read.
    pub fn read_part(&self, id: &JobId, number: u32) -> Result<Option<JobPart>, Error> {
        self.read_copy(id, number, |segment, part| segment.read_part(part))
    }

    /// Returns the records of a part whose kind `is_wanted`, as [`read_part`](Self::read_part) does. `reader` goes on where it
    /// ended.
    ///
    /// # Errors
    /// The part is damaged, or it cannot be read.
    pub fn read_kinds(
        &self,
        reader: &mut PartReader,
        (id, number): (&JobId, u32),
        is_wanted: &dyn Fn(Kind) -> bool,
    ) -> Result<Option<Vec<StoredRecord>>, Error> {
        self.read_copy(id, number, |segment, part| reader.read(segment, part, is_wanted))
    }

    /// Reads a part with `read` from the segments that have it, the later one first, until one is whole.
    fn read_copy<T>(
        &self,
        id: &JobId,
        number: u32,
        mut read: impl FnMut(&Arc<Segment>, &PartInfo) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.retry(|| {
            let slots = self.state().index.find_part(id, number);
            let mut failure = None;
            for slot in slots {
                let read = self.segment(slot).map(|segment| {
                    segment.map(|it| it.part(id, number).map(|part| read(&it, part)))
                });
                match read {
                    Ok(None) => return Ok(None),
                    Ok(Some(None)) => {}
                    Ok(Some(Some(Ok(part)))) => return Ok(Some(Some(part))),
                    // A bucket has no file that stays readable after its removal.
                    Ok(Some(Some(Err(e)))) if e.is_gone() => return Ok(None),
                    Ok(Some(Some(Err(e)))) | Err(e) => failure = failure.or(Some(e)),
                }
            }
            failure.map_or(Ok(Some(None)), Err)
        })
    }

    /// Returns the last record of each producer that the parts of a job may contain.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub fn marks(&self, id: &JobId) -> Result<Vec<Mark>, Error> {
        let mut last: BTreeMap<(String, i64), i64> = BTreeMap::new();
        for (_, part) in self.find_in_segments(id)? {
            for Mark { producer, epoch, sequence } in part.marks {
                let known = last.entry((producer, epoch)).or_insert(sequence);
                *known = (*known).max(sequence);
            }
        }
        let mark = |((producer, epoch), sequence)| Mark { producer, epoch, sequence };
        Ok(last.into_iter().map(mark).collect())
    }

    /// Returns the parts of a job with their segments, by number.
    pub(super) fn find_in_segments(
        &self,
        id: &JobId,
    ) -> Result<Vec<(Arc<Segment>, PartInfo)>, Error> {
        self.retry(|| {
            let mut found: Vec<(Arc<Segment>, PartInfo)> = Vec::new();
            let places = self.state().index.find(id);
            for (number, slot) in places {
                if found.last().is_some_and(|(_, last)| last.number == number) {
                    continue;
                }
                let Some(segment) = self.segment(slot)? else { return Ok(None) };
                if let Some(part) = segment.part(id, number).cloned() {
                    found.push((segment, part));
                }
            }
            Ok(Some(found))
        })
    }

    /// Returns the place of one part.
    pub(super) fn find_part(
        &self,
        id: &JobId,
        number: u32,
    ) -> Result<Option<(Arc<Segment>, PartInfo)>, Error> {
        self.retry(|| {
            let slots = self.state().index.find_part(id, number);
            for slot in slots {
                let Some(segment) = self.segment(slot)? else { return Ok(None) };
                if let Some(part) = segment.part(id, number).cloned() {
                    return Ok(Some(Some((segment, part))));
                }
            }
            Ok(Some(None))
        })
    }

    /// Looks again if a segment was removed after the look into the index: a compaction has moved its parts.
    fn retry<T>(&self, mut look: impl FnMut() -> Result<Option<T>, Error>) -> Result<T, Error> {
        for _ in 0..ATTEMPTS {
            if let Some(found) = look()? {
                return Ok(found);
            }
        }
        Err(Error::refused(&self.folder, &"its segments were removed while they were read"))
    }

    /// Returns a segment; `None` if it was removed meanwhile.
    pub(super) fn segment(&self, slot: Slot) -> Result<Option<Arc<Segment>>, Error> {
        let name = match self.state().segment(slot) {
            Some(Opened::Open(segment)) => return Ok(Some(segment)),
            Some(Opened::Closed(name)) => name,
            None => return Ok(None),
        };
        // Without the lock: a bucket answers after some milliseconds.
        let segment = match Segment::open_on(&*self.disk, &self.folder.join(name.file_name())) {
            Err(e) if e.is_gone() => {
                // A removal of ours ends before this look; whoever else removes files has lost jobs.
                if self.state().segments.contains_key(&slot) {
                    let why = "it is gone, and nothing here removed it".to_owned();
                    self.note_damage(Damage { file: name.file_name(), why });
                }
                return Ok(None);
            }
            opened => Arc::new(opened?),
        };
        self.state().keep(slot, &segment);
        Ok(Some(segment))
    }

    /// Compares the state with the folder, if an operation failed half-way.
    pub(super) fn catch_up(&self) -> Result<(), Error> {
        if self.state().is_behind {
            let damaged = self.state().catch_up(&*self.disk, &self.folder)?;
            damaged.into_iter().for_each(|damage| self.note_damage(damage));
            self.remove_repeated()?;
        }
        Ok(())
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }

    /// Removes segments whose parts other segments have, or that are too old; moves them aside if they are damaged. The
    /// removal is durable after the next sync of the folder. Returns the names of those that are removed, beside an error.
    pub(super) fn remove(
        &self,
        slots: &[Slot],
        is_damaged: impl Fn(Slot) -> bool,
    ) -> (Vec<String>, Result<(), Error>) {
        // The lock is held until the index is right: a reader finds a file or looks again.
        let mut state = self.state();
        let (mut removed, mut gone) = (BTreeSet::new(), Vec::new());
        let names = slots.iter().filter_map(|slot| Some((*slot, state.segments.get(slot)?)));
        let result = names.map(|(slot, known)| (slot, known.name.file_name())).try_for_each(
            |(slot, name)| {
                let path = self.folder.join(&name);
                match is_damaged(slot) {
                    true => log::quarantine(&*self.disk, &self.folder, &name)?,
                    false => {
                        let removed = self.disk.remove(&path);
                        removed.map_err(io_at(&path, "it cannot be removed"))?;
                    }
                }
                removed.insert(slot);
                gone.push(name);
                Ok(())
            },
        );
        state.forget(&removed);
        state.is_behind |= result.is_err();
        (gone, result)
    }

    pub(super) fn sync(&self) -> Result<(), Error> {
        let synced = self.disk.sync_folder(&self.folder);
        synced.map_err(io_at(&self.folder, "the folder cannot be synced"))
    }

    /// Removes segments whose parts are all in later ones: a crash interrupted a compaction. A segment that has other
    /// records than a later one under the same number of a part stays, and is named.
    fn remove_repeated(&self) -> Result<(), Error> {
        let repeated = self.state().index.repeated();
        let mut superseded = Vec::new();
        for slot in repeated {
            let Some(segment) = self.segment(slot)? else { continue };
            if self.is_repeated(slot, &segment)? {
                superseded.push(slot);
            } else if let Some(why) = self.conflict_of(&segment)? {
                self.note_damage(Damage { file: segment.name().to_owned(), why });
            }
        }
        if superseded.is_empty() {
            return Ok(());
        }
        self.remove(&superseded, |_| false).1?;
        self.sync()
    }

    /// Returns how a segment contradicts a later one, if it does. Only a file that came from elsewhere can.
    pub(super) fn conflict_of(&self, segment: &Segment) -> Result<Option<String>, Error> {
        for part in segment.parts() {
            if let Some((other, counted)) = self.find_part(&part.id, part.number)?
                && counted.sum != part.sum
            {
                let (id, number) = (&part.id, part.number);
                let why =
                    format!("part {number} of the job {id} differs from that of {}", other.name());
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    /// Returns true if later segments, which are whole, have the same parts.
    fn is_repeated(&self, slot: Slot, segment: &Segment) -> Result<bool, Error> {
        let mut later = BTreeMap::new();
        for part in segment.parts() {
            let slots = self.state().index.find_part(&part.id, part.number);
            let mut has_copy = false;
            for other in slots.into_iter().filter(|other| *other > slot) {
                let Some(copy) = self.segment(other)? else { continue };
                if copy.part(&part.id, part.number).is_some_and(|it| it.sum == part.sum) {
                    has_copy = true;
                    later.insert(other, copy);
                    break;
                }
            }
            if !has_copy {
                return Ok(false);
            }
        }
        for copy in later.into_values() {
            match copy.verify() {
                Err(e) if e.is_damage() => return Ok(false),
                verified => verified?,
            }
        }
        Ok(true)
    }
}
