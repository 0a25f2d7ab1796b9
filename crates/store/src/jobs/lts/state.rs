//! The segments that this process knows.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::index::{Index, Slot};
use crate::jobs::segment::{PartInfo, Segment, SegmentName};
use crate::log::{self, Damage, Disk, Error, Listed, io_at};

/// The most segments whose metadata stay in memory. Each has a description of 500 parts, some 300 kB.
const MAX_OPEN: usize = 64;

/// A segment of the folder.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) name: SegmentName,
    pub(super) bytes: u64,
    pub(super) parts: usize,
    /// The time at which it was sealed, in nanoseconds of UNIX time.
    pub(super) sealed: i64,
}

/// A segment that is open, or the name of one that is not.
#[derive(Debug)]
pub(super) enum Opened {
    Open(Arc<Segment>),
    Closed(SegmentName),
}

/// The segments of a folder.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) segments: BTreeMap<Slot, Known>,
    pub(super) index: Index,
    /// Segments that were read not long ago, with the time of their last use.
    open: HashMap<Slot, (u64, Arc<Segment>)>,
    uses: u64,
    pub(super) next_slot: Slot,
    /// The number of the next segment.
    pub(super) next_number: u64,
    /// True if the folder may have other files than this state: an operation failed half-way.
    pub(super) is_behind: bool,
}

/// Lists a folder, which need not exist.
pub(super) fn list(disk: &dyn Disk, folder: &Path) -> Result<Vec<Listed>, Error> {
    disk.list(folder).map_err(io_at(folder, "the folder cannot be listed"))
}

impl State {
    /// Compares with the folder: makes its names durable, removes temporaries, adds segments that are new and forgets
    /// those that are gone. Damaged files are moved aside and returned.
    pub(super) fn catch_up(
        &mut self,
        disk: &dyn Disk,
        folder: &Path,
    ) -> Result<Vec<Damage>, Error> {
        // A segment that a killed process has just renamed counts only once its name is durable.
        let synced = disk.sync_folder(folder);
        synced.map_err(io_at(folder, "the folder cannot be synced"))?;
        let mut names = Vec::new();
        for file in list(disk, folder)? {
            if SegmentName::is_temporary(&file.name) {
                let path = folder.join(&file.name);
                disk.remove(&path).map_err(io_at(&path, "it cannot be removed"))?;
            } else if let Some(name) = SegmentName::parse(&file.name) {
                names.push((name, file));
            }
        }
        names.sort();
        let aside = list(disk, &folder.join(log::FOLDER))?;
        let aside = aside.iter().filter_map(|file| SegmentName::parse(&file.name));
        let numbers = names.iter().map(|(name, _)| name.number).chain(aside.map(|n| n.number));
        let last = numbers.max().map_or(0, |last| last.saturating_add(1));
        self.next_number = self.next_number.max(last);
        let there: HashSet<&SegmentName> = names.iter().map(|(name, _)| name).collect();
        let gone = self.segments.iter().filter(|(_, known)| !there.contains(&known.name));
        let gone: BTreeSet<Slot> = gone.map(|(slot, _)| *slot).collect();
        self.forget(&gone);
        let known: HashSet<SegmentName> =
            self.segments.values().map(|known| known.name.clone()).collect();
        let mut damaged = Vec::new();
        for (name, file) in names.into_iter().filter(|(name, _)| !known.contains(name)) {
            match Segment::open_on(disk, &folder.join(&file.name)) {
                Ok(segment) => self.add(name, file.bytes, segment),
                Err(e) if e.is_damage() => {
                    log::quarantine(disk, folder, &file.name)?;
                    damaged.push(Damage { file: file.name, why: e.why() });
                }
                Err(e) => return Err(e),
            }
        }
        self.is_behind = false;
        Ok(damaged)
    }

    fn add(&mut self, name: SegmentName, bytes: u64, segment: Segment) {
        let sealed = segment.sealed().as_nanos();
        self.insert(Known { name, bytes, parts: segment.parts().len(), sealed }, segment.parts());
    }

    /// Adds a durable segment.
    pub(super) fn insert(&mut self, known: Known, parts: &[PartInfo]) {
        let slot = self.next_slot;
        self.next_slot += 1;
        self.next_number = self.next_number.max(known.name.number.saturating_add(1));
        self.index.add(slot, parts);
        self.segments.insert(slot, known);
    }

    /// Forgets segments whose files were removed.
    pub(super) fn forget(&mut self, slots: &BTreeSet<Slot>) {
        if !slots.is_empty() {
            self.segments.retain(|slot, _| !slots.contains(slot));
            self.open.retain(|slot, _| !slots.contains(slot));
            self.index.remove(slots);
        }
    }

    /// Returns a segment, or the name of one that has to be opened; `None` if it was removed.
    pub(super) fn segment(&mut self, slot: Slot) -> Option<Opened> {
        self.uses += 1;
        if let Some((used, segment)) = self.open.get_mut(&slot) {
            *used = self.uses;
            return Some(Opened::Open(segment.clone()));
        }
        Some(Opened::Closed(self.segments.get(&slot)?.name.clone()))
    }

    /// Keeps a segment that was opened, unless it was removed meanwhile.
    pub(super) fn keep(&mut self, slot: Slot, segment: &Arc<Segment>) {
        if !self.segments.contains_key(&slot) {
            return;
        }
        if self.open.len() >= MAX_OPEN
            && let Some(oldest) = self.open.iter().min_by_key(|(_, (used, _))| *used)
        {
            let oldest = *oldest.0;
            self.open.remove(&oldest);
        }
        self.open.insert(slot, (self.uses, segment.clone()));
    }
}
