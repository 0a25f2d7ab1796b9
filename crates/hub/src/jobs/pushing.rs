//! The way of a record into the intake: the policy, and the sealed parts of its job.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::time::Duration;

use skopos_access::{Action, Caller, may};
use skopos_model::job::{JobId, JobRecord, JobStart, Kind};
use skopos_store::jobs::catalogue;
use skopos_store::jobs::{JobEntry, PushOutcome, Pushed, Refusal, SealedParts, Visibility};

use super::counts::add;
use super::sealed::{OfSite, ReadParts};
use super::shared::{Shared, described, is_away, now};
use super::stored::{Session, StoreError};
use super::turn::InTurn;

/// The time by which a record may be ahead of this machine's clock. Clocks of a site differ by less.
const MAX_AHEAD: Duration = Duration::from_secs(300);

/// The most jobs of a batch that are looked up once.
const MAX_KNOWN: usize = 1024;

/// The reason why a record was not stored.
pub(super) enum NotStored {
    /// The record is not valid, or the caller may not store it.
    Record(String),
    /// Too much waits for the next commit.
    Uncommitted,
    /// The batch cannot go on.
    Batch(StoreError),
}

impl Shared {
    /// Stores a record of a stream if the policy allows it. `known` are the jobs of the batch that were looked up.
    pub(super) fn push(
        &self,
        (session, stream): (Session, &mut InTurn<'_>),
        pushed: &Pushed<'_>,
        known: &mut HashMap<JobId, Known>,
    ) -> Result<PushOutcome, NotStored> {
        if *stream.caller != Caller::Owner {
            self.check(stream, &pushed.record, known)?;
        }
        let of_site = OfSite { site: &self.site, lts: &self.lts };
        let mut intake = self.intake();
        let unknown = intake.unknown_job(pushed);
        let read = if let Some(id) = unknown {
            // No other producer waits while segments are read.
            drop(intake);
            let read = match self.lts.may_have(&id) {
                true => stream.aside(|| ReadParts::read(&of_site, id)),
                false => ReadParts::read(&of_site, id),
            };
            intake = self.intake();
            Some(read)
        } else {
            None
        };
        let of_site: &dyn SealedParts = match &read {
            Some(read) if read.is_current(&self.lts) => read,
            // A part was sealed meanwhile.
            _ => &of_site,
        };
        if session != Session(self.reopened.load(Ordering::Relaxed)) {
            return Err(NotStored::Batch(StoreError::Lost));
        }
        let has_room = intake.check_share(pushed);
        let pushed = has_room.and_then(|()| intake.push(pushed, of_site, now()));
        drop(intake);
        let busy = |refusal: &Refusal| NotStored::Batch(StoreError::Busy(refusal.to_string()));
        pushed.map_err(|refusal| match refusal {
            Refusal::Invalid(e) => NotStored::Record(described(&e)),
            Refusal::Uncommitted => NotStored::Uncommitted,
            Refusal::Full(_) => {
                add(&self.counts.delayed, 1);
                busy(&refusal)
            }
            Refusal::Share(_) => {
                add(&self.counts.held_back, 1);
                busy(&refusal)
            }
            Refusal::Producer | Refusal::Stale { .. } => {
                NotStored::Batch(StoreError::Producer(refusal.to_string()))
            }
        })
    }

    /// Asks the policy whether a caller may store a record.
    fn check(
        &self,
        stream: &mut InTurn<'_>,
        record: &JobRecord<'_>,
        known: &mut HashMap<JobId, Known>,
    ) -> Result<(), NotStored> {
        let refused = |why: String| NotStored::Record(why);
        let caller = stream.caller;
        let id = record.id().map_err(|e| refused(e.to_string()))?;
        if record.time.since(now()) > MAX_AHEAD {
            // The latest start of a job counts, so none may be later than all others for ever.
            return Err(refused("the time of the record is in the future".to_owned()));
        }
        if !known.contains_key(&id) {
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(id.clone(), self.known(stream, &id)?);
        }
        let Some(job) = known.get(&id) else { return Ok(()) };
        let start = match record.kind {
            Kind::Start => Some(record.start().map_err(|e| refused(described(&e)))?),
            _ => None,
        };
        let is_taken = start.as_ref().is_some_and(|start| job.is_taken_by(start));
        let (owner, is_elsewhere) = match (&start, caller) {
            // A new job belongs to the user that its start names, if its id is one of that user's.
            (Some(start), Caller::User(user)) if job.user.is_none() => {
                let is_own =
                    record.job.strip_prefix(&user.name).is_some_and(|it| it.starts_with('/'));
                (Some(start.user.clone()).filter(|_| is_own && job.nodes.is_empty()), false)
            }
            (Some(start), Caller::Node(names)) => (
                job.user.clone(),
                !start.nodes.contains(&names.node) || job.is_elsewhere(&names.node),
            ),
            (None, Caller::Node(names)) => (job.user.clone(), job.is_elsewhere(&names.node)),
            _ => (job.user.clone(), false),
        };
        let node = Some(record.node).filter(|node| !node.is_empty());
        may(caller, Action::StoreJob { node, owner: owner.as_deref(), is_elsewhere })
            .map_err(|denied| refused(denied.to_string()))?;
        // Only who may store records of the job learns whose it is not.
        if is_taken {
            return Err(refused("the job belongs to another user or project".to_owned()));
        }
        if start.is_some() {
            // It changes what is known.
            known.remove(&id);
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

    /// Returns what is known about a job.
    fn known(&self, stream: &mut InTurn<'_>, id: &JobId) -> Result<Known, NotStored> {
        if let Some(job) = self.intake().job(id) {
            return Ok(Known::of(job.entry()));
        }
        let entry = stream.aside(|| self.finished(id));
        let busy = |e: catalogue::Error| NotStored::Batch(StoreError::Busy(described(&e)));
        Ok(entry.map_err(busy)?.as_ref().map(Known::of).unwrap_or_default())
    }
}

/// The part of a job's entry that the policy needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    user: Option<String>,
    project: Option<String>,
    has_start: bool,
    /// Nodes of its start.
    nodes: BTreeSet<String>,
}

impl Known {
    fn of(entry: &JobEntry) -> Self {
        let start = entry.start.as_ref();
        Self {
            user: entry.user().map(str::to_owned),
            project: entry.project().map(str::to_owned),
            has_start: start.is_some(),
            nodes: start.map(|start| start.value.nodes.clone()).unwrap_or_default(),
        }
    }

    /// Returns true if a start names another user or project than the known one.
    fn is_taken_by(&self, start: &JobStart) -> bool {
        let is_other = |known: &Option<String>, told: &str| known.as_deref().unwrap_or("") != told;
        self.has_start
            && (is_other(&self.user, &start.user) || is_other(&self.project, &start.project))
    }

    /// Returns true if the job is known to run on other nodes alone.
    fn is_elsewhere(&self, node: &str) -> bool {
        !self.nodes.is_empty() && !self.nodes.contains(node)
    }
}
