//! The sealed parts of a site, for its intake.

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
#[derive(Debug)]
pub(super) struct ReadParts {
    id: JobId,
    version: Version,
    /// The number of its next part, its marks, and the entry of its parts.
    parts: (u32, Vec<Mark>, JobEntry),
}

impl ReadParts {
    /// Reads the parts of a job.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub(super) fn read(of_site: &OfSite<'_>, id: JobId) -> Result<Self, LogError> {
        let version = of_site.lts.version();
        let parts = of_site.of_job(&id)?;
        Ok(Self { id, version, parts })
    }

    /// Returns true if these are the parts of a job.
    pub(super) fn is_of(&self, id: &JobId) -> bool {
        self.id == *id
    }

    /// Returns true if no segment has come or gone since.
    pub(super) fn is_current(&self, lts: &Lts) -> bool {
        self.version == lts.version()
    }
}

impl SealedParts for ReadParts {
    fn of_job(&self, id: &JobId) -> Result<(u32, Vec<Mark>, JobEntry), LogError> {
        if self.is_of(id) {
            return Ok(self.parts.clone());
        }
        let source = std::io::Error::other("the parts of the job were not read");
        Err(LogError::Io { path: std::path::PathBuf::new(), doing: "it was not read", source })
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
