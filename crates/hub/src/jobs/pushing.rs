//! The way of a record into the intake: the policy, and the sealed parts of its job.

use std::sync::atomic::Ordering;
use std::time::Duration;

use skopos_access::{Action, Caller, may};
use skopos_model::job::{JobId, JobRecord, JobStart, Kind};
use skopos_store::jobs::{PushOutcome, Pushed, Refusal, SealedParts};

use super::counts::add;
use super::looked_up::LookedUp;
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

    /// Asks the policy whether a caller may store a record. Other streams store records between the turns of this one, so the
    /// intake is asked for each record, and the jobs that were looked up only if it does not have the job.
    fn check(
        &self,
        caller: &Caller,
        record: &JobRecord<'_>,
        looked_up: &LookedUp,
    ) -> Result<(), NotStored> {
        let refused = |why: String| NotStored::Record(why);
        let id = record.id().map_err(|e| refused(e.to_string()))?;
        if record.time.since(now()) > MAX_AHEAD {
            // The latest start of a job counts, so none may be later than all others for ever.
            return Err(refused("the time of the record is in the future".to_owned()));
        }
        let new = match record.kind {
            Kind::Start => Some(record.start().map_err(|e| refused(described(&e)))?),
            _ => None,
        };
        let intake = self.intake();
        let known = match intake.job(&id) {
            Some(job) => job.entry().start.as_ref().map(|start| &start.value),
            None => {
                let last_part = self.lts.last_part(&id);
                let place = LookupPlace::Catalogue { last_part };
                looked_up.start(&id, last_part).ok_or(NotStored::Lookup(Lookup { id, place }))?
            }
        };
        allow(caller, record, new.as_ref(), known).map_err(refused)
    }
}

/// Asks the policy whether a caller may store a record of a job. `new` is the start that the record is, and `known` is the
/// job's start.
fn allow(
    caller: &Caller,
    record: &JobRecord<'_>,
    new: Option<&JobStart>,
    known: Option<&JobStart>,
) -> Result<(), String> {
    let nodes = known.map(|known| &known.nodes).filter(|nodes| !nodes.is_empty());
    let user = known.map(|known| known.user.as_str()).filter(|user| !user.is_empty());
    // The job is known to run on other nodes alone.
    let is_elsewhere = |node: &str| nodes.is_some_and(|nodes| !nodes.contains(node));
    let (owner, is_elsewhere) = match (new, caller) {
        // A new job belongs to the user that its start names, if its id is one of that user's.
        (Some(new), Caller::User(caller)) if user.is_none() => {
            let is_own =
                record.job.strip_prefix(&caller.name).is_some_and(|it| it.starts_with('/'));
            (Some(new.user.as_str()).filter(|_| is_own && nodes.is_none()), false)
        }
        (Some(new), Caller::Node(names)) => {
            (user, !new.nodes.contains(&names.node) || is_elsewhere(&names.node))
        }
        (None, Caller::Node(names)) => (user, is_elsewhere(&names.node)),
        _ => (user, false),
    };
    let node = Some(record.node).filter(|node| !node.is_empty());
    may(caller, Action::StoreJob { node, owner, is_elsewhere })
        .map_err(|denied| denied.to_string())?;
    let is_taken = known
        .zip(new)
        .is_some_and(|(known, new)| known.user != new.user || known.project != new.project);
    // The answer says that a job is taken only to a caller that may store its records.
    match is_taken {
        true => Err("the job belongs to another user or project".to_owned()),
        false => Ok(()),
    }
}
