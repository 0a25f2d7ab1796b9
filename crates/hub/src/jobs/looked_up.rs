//! The jobs of a batch that were looked up: in the catalogue for the policy, in the segments for their sequences.

use std::collections::HashMap;

use skopos_model::job::{JobId, JobStart};
use skopos_store::history::Error as LogError;
use skopos_store::jobs::catalogue;
use skopos_store::jobs::{JobEntry, Visibility};

use super::counts::add;
use super::sealed::{OfSite, ReadParts};
use super::shared::{Shared, described, is_away};
use super::stored::{Lookup, LookupPlace, StoreError};

/// The most jobs of a batch that are looked up once.
const MAX_KNOWN: usize = 1024;

/// The jobs of a batch that were looked up. Other streams have turns between a look-up and its use, so it counts only for a job
/// that the intake does not have.
#[derive(Debug, Default)]
pub struct LookedUp {
    finished: HashMap<JobId, Finished>,
    /// The sealed parts of the job of the next record.
    pub(super) parts: Option<ReadParts>,
}

/// A job that the intake did not have.
#[derive(Debug)]
struct Finished {
    /// The part of its start that the policy needs; `None` if the catalogue has no start.
    start: Option<JobStart>,
    /// The last of its parts when the intake did not have it. A later part may have a start.
    last_part: Option<u32>,
}

impl LookedUp {
    /// Notes the entry of a job that the intake did not have when `last_part` was the last of its parts.
    fn know(&mut self, id: JobId, entry: Option<JobEntry>, last_part: Option<u32>) {
        if self.finished.len() >= MAX_KNOWN {
            self.finished.clear();
        }
        let start = entry.and_then(|entry| entry.start).map(|start| {
            let JobStart { user, project, nodes, .. } = start.value;
            JobStart { user, project, nodes, ..JobStart::default() }
        });
        self.finished.insert(id, Finished { start, last_part });
    }

    /// Returns the start of a job that the intake does not have now, if it has one; `None` if it was not looked up, or if a part
    /// was sealed since.
    pub(super) fn start(&self, id: &JobId, last_part: Option<u32>) -> Option<Option<&JobStart>> {
        let known = self.finished.get(id).filter(|known| known.last_part == last_part)?;
        Some(known.start.as_ref())
    }
}

impl Shared {
    /// Looks up a job. May read segments, or ask a database: other streams have the turn meanwhile. Blocks.
    pub(super) fn look_up(
        &self,
        lookup: &Lookup,
        looked_up: &mut LookedUp,
    ) -> Result<(), StoreError> {
        let id = &lookup.id;
        match lookup.place {
            LookupPlace::Catalogue { last_part } => {
                let entry = self.finished(id).map_err(|e| StoreError::Busy(described(&e)))?;
                looked_up.know(id.clone(), entry, last_part);
            }
            LookupPlace::Segments => {
                let of_site = OfSite { site: &self.site, lts: &self.lts };
                let parts = ReadParts::read(&of_site, id.clone()).map_err(|_| {
                    add(&self.counts.delayed, 1);
                    // The error names files, and jobs of others.
                    StoreError::Busy("the sealed parts of the job cannot be read".to_owned())
                });
                looked_up.parts = Some(parts?);
            }
        }
        Ok(())
    }

    /// Returns the entry of a job that is not in the intake, from the segments if the catalogue is away.
    pub(super) fn finished(&self, id: &JobId) -> Result<Option<JobEntry>, catalogue::Error> {
        match self.catalogue.get(&Visibility::Everything, &self.site, id) {
            Err(e) if is_away(&e) => self.sealed_entry(id).map_err(|_| e),
            found => found,
        }
    }

    /// Returns the entry of a job from its segments; `None` if it has no part there.
    pub(super) fn sealed_entry(&self, id: &JobId) -> Result<Option<JobEntry>, LogError> {
        let entry = OfSite { site: &self.site, lts: &self.lts }.entry(id)?;
        Ok(Some(entry).filter(|entry| !entry.parts.is_empty()))
    }
}
