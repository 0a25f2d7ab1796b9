//! Chores of the long-time storage: merging small segments, and removing old ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use skopos_model::job::JobId;
use skopos_store::jobs::{Change, Changes, JobEntry, JobKey, PartRef, Visibility};

use super::counts::add;
use super::sealed::OfSite;
use super::shared::{AnyError, Shared, now};

/// Pause between two runs. A run that finds nothing to do lists a folder.
const EVERY: Duration = Duration::from_secs(60);

/// The most jobs of one change of the catalogue.
const MAX_JOBS: usize = 250;

/// The chores of a thread.
#[derive(Debug)]
pub(super) struct Chores {
    next: Instant,
    /// Changes that the catalogue has not followed yet.
    behind: Vec<Changes>,
}

impl Chores {
    pub(super) fn new() -> Self {
        Self { next: Instant::now() + EVERY, behind: Vec::new() }
    }

    /// Returns true if it is time to [`run`](Self::run).
    pub(super) fn is_time(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Merges and removes segments, and tells the catalogue and the intake about the parts that moved.
    pub(super) fn run(&mut self, shared: &Shared) -> Result<(), AnyError> {
        self.next = Instant::now() + EVERY;
        let compacted = self.follow(shared, shared.lts.compact(now()));
        let retained = self.follow(shared, shared.lts.retain(&shared.retention, now()));
        compacted.and(retained)
    }

    /// Tells the catalogue about changes, after those that it has not followed yet.
    pub(super) fn follow(&mut self, shared: &Shared, changes: Changes) -> Result<(), AnyError> {
        if changes != Changes::default() {
            self.behind.push(changes);
        }
        let mut failed = Vec::new();
        while let Some(changes) = self.behind.first() {
            shared.follow(changes)?;
            failed.extend(self.behind.remove(0).errors);
        }
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
    }
}

impl Shared {
    /// Follows changes of the segments.
    pub(super) fn follow(&self, changes: &Changes) -> Result<(), AnyError> {
        let mut moved: BTreeMap<&JobId, Vec<&PartRef>> = BTreeMap::new();
        for placed in &changes.moved {
            moved.entry(&placed.id).or_default().push(&placed.part);
        }
        let lost = changes.damaged.iter().flat_map(|damage| &damage.lost);
        let other = changes.removed.iter().chain(lost).chain(&changes.restored);
        let removed: BTreeSet<&JobId> = other.map(|placed| &placed.id).collect();
        add(&self.counts.removed_parts, changes.removed.len() as u64);
        let of_moved: Vec<&JobId> =
            moved.keys().copied().filter(|id| !removed.contains(id)).collect();
        for ids in of_moved.chunks(MAX_JOBS) {
            let mut entries = Vec::new();
            for id in ids {
                let parts = moved.get(id).map_or(&[][..], Vec::as_slice);
                self.intake().moved(id, parts);
                let known = self.catalogue.get(&Visibility::Everything, &self.site, id)?;
                entries.extend(known.map(|mut entry| {
                    entry.move_parts(parts);
                    entry
                }));
            }
            self.catalogue.apply(&Change { entries: &entries, ..Change::default() })?;
        }
        for ids in Vec::from_iter(removed).chunks(MAX_JOBS) {
            let (mut keys, mut entries) = (Vec::new(), Vec::new());
            for id in ids {
                keys.push(JobKey { site: self.site.clone(), id: (*id).clone() });
                let parts = self.lts.find(id)?;
                self.intake().keep_parts(id, &parts);
                let open = self.intake().job(id).map(|job| job.entry().clone());
                let entry = match open {
                    Some(open) => open,
                    None => OfSite { site: &self.site, lts: &self.lts }.entry(id)?,
                };
                entries.extend(Some(entry).filter(JobEntry::has_records));
            }
            self.catalogue.apply(&Change {
                removed: &keys,
                entries: &entries,
                ..Change::default()
            })?;
        }
        let segments: BTreeSet<String> =
            changes.moved.iter().map(|placed| placed.part.segment.clone()).collect();
        let segments = Vec::from_iter(segments);
        self.catalogue.apply(&Change {
            segments: &segments,
            removed_segments: &changes.removed_segments,
            ..Change::default()
        })?;
        Ok(())
    }
}
