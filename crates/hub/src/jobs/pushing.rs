//! The way of a record into the intake: the policy, and the sealed parts of its job.

use std::sync::atomic::Ordering;
use std::time::Duration;

use skopos_access::{Action, Caller, may};
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_store::jobs::{PushOutcome, Pushed, Refusal, SealedParts};

use super::counts::add;
use super::looked_up::{Known, LookedUp};
use super::sealed::{OfSite, ReadParts};
use super::shared::{Shared, described, now};
use super::stored::{Lookup, LookupPlace, Session, StoreError};

/// The time by which a record may be ahead of this machine's clock. Clocks of a site differ by less.
const MAX_AHEAD: Duration = Duration::from_secs(300);

/// The reason why a record was not stored.
pub(super) enum NotStored {
    /// The record is not valid, or the caller may not store it.
    Record(String),
    /// The job is looked up first.
    Lookup(Lookup),
    /// Too much waits for the next commit.
    Uncommitted,
    /// The batch cannot go on.
    Batch(StoreError),
}

impl Shared {
    /// Stores a record of a stream if the policy allows it. `looked_up` are the jobs of the batch that were looked up.
    pub(super) fn push(
        &self,
        (session, caller): (Session, &Caller),
        pushed: &Pushed<'_>,
        looked_up: &mut LookedUp,
    ) -> Result<PushOutcome, NotStored> {
        if *caller != Caller::Owner {
            self.check(caller, &pushed.record, looked_up)?;
        }
        let outcome = self.push_allowed(session, pushed, looked_up)?;
        looked_up.parts = None;
        if pushed.record.kind == Kind::Start
            && let Ok(id) = pushed.record.id()
        {
            // It changes what is known.
            looked_up.known.remove(&id);
        }
        Ok(outcome)
    }

    fn push_allowed(
        &self,
        session: Session,
        pushed: &Pushed<'_>,
        looked_up: &mut LookedUp,
    ) -> Result<PushOutcome, NotStored> {
        let of_site = OfSite { site: &self.site, lts: &self.lts };
        let mut intake = self.intake();
        let has_parts = |id: &JobId| looked_up.parts.as_ref().is_some_and(|read| read.is_of(id));
        if let Some(id) = intake.unknown_job(pushed).filter(|id| !has_parts(id)) {
            // No other producer waits while segments are read.
            drop(intake);
            if self.lts.may_have(&id) {
                return Err(NotStored::Lookup(Lookup { id, place: LookupPlace::Segments }));
            }
            looked_up.parts = ReadParts::read(&of_site, id).ok();
            intake = self.intake();
        }
        let of_site: &dyn SealedParts = match &looked_up.parts {
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
        caller: &Caller,
        record: &JobRecord<'_>,
        looked_up: &mut LookedUp,
    ) -> Result<(), NotStored> {
        let refused = |why: String| NotStored::Record(why);
        let id = record.id().map_err(|e| refused(e.to_string()))?;
        if record.time.since(now()) > MAX_AHEAD {
            // The latest start of a job counts, so none may be later than all others for ever.
            return Err(refused("the time of the record is in the future".to_owned()));
        }
        if !looked_up.known.contains_key(&id) {
            let running = self.intake().job(&id).map(|job| Known::of(job.entry()));
            let Some(known) = running else {
                return Err(NotStored::Lookup(Lookup { id, place: LookupPlace::Catalogue }));
            };
            looked_up.know(id.clone(), known);
        }
        let Some(job) = looked_up.known.get(&id) else { return Ok(()) };
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
        // The answer says that a job is taken only to a caller that may store its records.
        match is_taken {
            true => Err(refused("the job belongs to another user or project".to_owned())),
            false => Ok(()),
        }
    }
}
