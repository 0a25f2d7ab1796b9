//! The sealed parts of a site, for its intake.

use std::cell::RefCell;

use skopos_model::job::JobId;
use skopos_store::history::Error as LogError;
use skopos_store::jobs::{JobEntry, Lts, Mark, PartRef, SealedParts, Version};

/// The parts that are sealed, for the intake.
pub(super) struct OfSite<'l> {
    pub(super) site: &'l str,
    pub(super) lts: &'l Lts,
}

impl SealedParts for OfSite<'_> {
    fn of_job(&self, id: &JobId) -> Result<(u32, Vec<Mark>, JobEntry), LogError> {
        let parts = self.lts.find(id)?;
        let next = parts.last().map_or(0, |part| part.number + 1);
        Ok((next, self.lts.marks(id)?, self.entry(id)?))
    }
}

/// The sealed parts of one job, which were read before the intake was locked.
pub(super) struct ReadParts {
    id: JobId,
    version: Version,
    parts: RefCell<Option<Parts>>,
}

/// The answer about a job: the number of its next part, its marks, and the entry of its parts.
type Parts = Result<(u32, Vec<Mark>, JobEntry), LogError>;

impl ReadParts {
    /// Reads the parts of a job.
    pub(super) fn read(of_site: &OfSite<'_>, id: JobId) -> Self {
        let version = of_site.lts.version();
        let parts = RefCell::new(Some(of_site.of_job(&id)));
        Self { id, version, parts }
    }

    /// Returns true if no segment has come or gone since.
    pub(super) fn is_current(&self, lts: &Lts) -> bool {
        self.version == lts.version()
    }
}

impl SealedParts for ReadParts {
    fn of_job(&self, id: &JobId) -> Result<(u32, Vec<Mark>, JobEntry), LogError> {
        let parts = self.parts.borrow_mut().take().filter(|_| *id == self.id);
        let missing = || std::io::Error::other("the parts of the job were not read");
        let path = std::path::PathBuf::new();
        let doing = "it was not read";
        parts.unwrap_or_else(|| Err(LogError::Io { path, doing, source: missing() }))
    }
}

impl OfSite<'_> {
    /// Returns the entry of a job. Damaged parts are left out: they must not keep a hub from its other jobs.
    pub(super) fn entry(&self, id: &JobId) -> Result<JobEntry, LogError> {
        match self.lts.entry(self.site, id) {
            Err(e) if e.is_damage() => self.readable(id, self.lts.find(id)?),
            entry => entry,
        }
    }

    /// Returns the entry of a job with the content of its readable parts.
    fn readable(&self, id: &JobId, parts: Vec<PartRef>) -> Result<JobEntry, LogError> {
        let mut entry = JobEntry::new(self.site, id.clone());
        for part in parts {
            match self.lts.read_part(id, part.number) {
                Err(e) if e.is_damage() => {}
                read => {
                    let records = read?.into_iter().flat_map(|part| part.records);
                    records.for_each(|record| record.get().into_iter().for_each(|r| entry.add(&r)));
                }
            }
            entry.parts.push(part);
        }
        Ok(entry)
    }
}
