//! The copy of another hub's jobs, as it is read.

use std::path::PathBuf;
use std::sync::Arc;

use skopos_model::job::{JobId, JobStart};
use skopos_store::jobs::{Change, JobEntry, JobKey, Visibility, catalogue};

use super::sealed::OfSite;
use super::shared::{AnyError, Shared};

/// The most entries that the list of a copy gets at once.
const MAX_LISTED: usize = 250;

/// The hub of which some jobs are a copy, and what is not shown of it.
#[derive(Debug)]
pub(super) struct CopyOf {
    /// Name of the hub.
    pub(super) hub: String,
    /// Number of its storage.
    pub(super) storage: u64,
    /// The jobs of this hub itself: a job that they have is not shown a second time.
    pub(super) own: Option<Arc<Shared>>,
    /// The list of the copy's jobs; `None` if jobs are found by their ids alone.
    pub(super) list: Option<Arc<List>>,
}

impl CopyOf {
    /// Returns true if this hub has a job of the copy itself.
    pub(super) fn hides(&self, shared: &Shared, id: &JobId) -> bool {
        let Some(own) = self.own_start(id) else { return false };
        let copied = self.copied(shared, id).ok().flatten();
        copied.is_some_and(|copied| is_same(&own, &copied))
    }

    /// Returns true if this hub has the job of an entry of the copy itself.
    pub(super) fn hides_entry(&self, copied: &JobEntry) -> bool {
        self.own_start(&copied.id).is_some_and(|own| is_same(&own, copied))
    }

    /// Returns the start of the job with this id that this hub has itself.
    fn own_start(&self, id: &JobId) -> Option<JobStart> {
        let own = self.own.as_ref()?;
        let running = own.intake().job(id).map(|job| job.entry().start.clone());
        let start = match running {
            Some(start) => start,
            None if own.lts.may_have(id) => own.finished(id).ok()??.start,
            None => None,
        };
        start.map(|start| start.value)
    }

    /// Returns the entry of a job, from the list or from its records.
    pub(super) fn entry(
        &self,
        shared: &Shared,
        id: &JobId,
    ) -> Result<Option<JobEntry>, catalogue::Error> {
        Ok(self.copied(shared, id)?.filter(|copied| !self.hides_entry(copied)))
    }

    fn copied(&self, shared: &Shared, id: &JobId) -> Result<Option<JobEntry>, catalogue::Error> {
        if self.list.is_some() {
            return shared.catalogue.get(&Visibility::Everything, &shared.site, id);
        }
        let failed = |e: AnyError| {
            catalogue::Error::database(&self.hub, "the copy of a job cannot be read", e)
        };
        shared.copied(id).map_err(failed)
    }
}

/// Returns true if a job of this hub is one of a copy. Its start must be the same: any node may send other records under an id, or
/// another start, and must not hide a job thereby.
fn is_same(own: &JobStart, copied: &JobEntry) -> bool {
    copied.start.as_ref().is_some_and(|start| start.value == *own)
}

/// The list of a copy's jobs: a catalogue that was made of its records when its hub went away. Until the hub comes back, they
/// do not change.
#[derive(Debug)]
pub(super) struct List {
    pub(super) shared: Arc<Shared>,
    /// The folder of the catalogue, which is removed with it.
    pub(super) folder: PathBuf,
}

impl Drop for List {
    fn drop(&mut self) {
        // The next process that opens the copy removes what is left.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Shared {
    /// Fills the catalogue of a copy.
    pub(super) fn list_copy(&self) -> Result<(), AnyError> {
        self.catch_up()?;
        let ids: Vec<JobId> = self.intake().jobs().map(|(id, _)| id.clone()).collect();
        for ids in ids.chunks(MAX_LISTED) {
            let entries = ids.iter().filter_map(|id| self.copied(id).transpose());
            let entries = entries.collect::<Result<Vec<JobEntry>, AnyError>>()?;
            let key = |entry: &JobEntry| JobKey { site: entry.site.clone(), id: entry.id.clone() };
            // The entries of the sealed parts alone are replaced.
            let removed: Vec<JobKey> = entries.iter().map(key).collect();
            let change = Change { removed: &removed, entries: &entries, ..Change::default() };
            self.catalogue.apply(&change)?;
        }
        Ok(())
    }

    /// Returns the entry of a job of a copy: that of its sealed parts, with the records after them. The intake of a copy has
    /// no entries.
    fn copied(&self, id: &JobId) -> Result<Option<JobEntry>, AnyError> {
        // The intake first: a part that is sealed meanwhile is in both.
        let unsealed = self.intake().unsealed(id)?;
        let mut entry = OfSite { site: &self.site, lts: &self.lts }.entry(id)?;
        for record in unsealed.read()? {
            record.get().into_iter().for_each(|record| entry.add(&record));
        }
        Ok(Some(entry).filter(JobEntry::has_records))
    }
}
