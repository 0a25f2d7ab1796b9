//! The jobs of a batch that were looked up: in the catalogue for the policy, in the segments for their sequences.

use std::collections::{BTreeSet, HashMap};

use skopos_model::job::{JobId, JobStart};
use skopos_store::jobs::catalogue;
use skopos_store::jobs::{JobEntry, Visibility};

use super::counts::add;
use super::sealed::{OfSite, ReadParts};
use super::shared::{Shared, described, is_away};
use super::stored::{Lookup, LookupPlace, StoreError};

/// The most jobs of a batch that are looked up once.
const MAX_KNOWN: usize = 1024;

/// The jobs of a batch that were looked up.
#[derive(Debug, Default)]
pub struct LookedUp {
    pub(super) known: HashMap<JobId, Known>,
    /// The sealed parts of the job of the next record.
    pub(super) parts: Option<ReadParts>,
}

impl LookedUp {
    /// Notes what is known about a job.
    pub(super) fn know(&mut self, id: JobId, known: Known) {
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(id, known);
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
            LookupPlace::Catalogue => {
                let entry = self.finished(id).map_err(|e| StoreError::Busy(described(&e)))?;
                looked_up.know(id.clone(), entry.as_ref().map(Known::of).unwrap_or_default());
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
            Err(e) if is_away(&e) => {
                let of_site = OfSite { site: &self.site, lts: &self.lts };
                let entry = of_site.entry(id).map_err(|_| e)?;
                Ok(Some(entry).filter(|entry| !entry.parts.is_empty()))
            }
            found => found,
        }
    }
}

/// The part of a job's entry that the policy needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) user: Option<String>,
    project: Option<String>,
    has_start: bool,
    /// Nodes of its start.
    pub(super) nodes: BTreeSet<String>,
}

impl Known {
    pub(super) fn of(entry: &JobEntry) -> Self {
        let start = entry.start.as_ref();
        Self {
            user: entry.user().map(str::to_owned),
            project: entry.project().map(str::to_owned),
            has_start: start.is_some(),
            nodes: start.map(|start| start.value.nodes.clone()).unwrap_or_default(),
        }
    }

    /// Returns true if a start names another user or project than the known one.
    pub(super) fn is_taken_by(&self, start: &JobStart) -> bool {
        let is_other = |known: &Option<String>, told: &str| known.as_deref().unwrap_or("") != told;
        self.has_start
            && (is_other(&self.user, &start.user) || is_other(&self.project, &start.project))
    }

    /// Returns true if the job is known to run on other nodes alone.
    pub(super) fn is_elsewhere(&self, node: &str) -> bool {
        !self.nodes.is_empty() && !self.nodes.contains(node)
    }
}
