//! The storage of the jobs of a site.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use skopos_access::{Action, Caller, Denied, may};
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_model::{Timestamp, unpoisoned};
use skopos_store::jobs::catalogue;
use skopos_store::jobs::{
    Catalogue, Filter, Intake, IntakeLimits, JobEntry, JobRow, Lts, Mark, Page, PageRequest,
    PushOutcome, Pushed, Refusal, SealedParts, SqliteCatalogue, StoredRecord, Visibility,
};
use thiserror::Error;
use tokio::sync::watch;

use super::batch::BatchError;
use super::threads::{Signal, Threads};
use crate::catalogue::visibility;

/// The most refused records of a batch that an answer names. Further ones are counted.
const MAX_NAMED: usize = 32;

/// Pause of a thread that waits for a commit, which comes after some milliseconds.
const WAIT_EVERY: Duration = Duration::from_millis(2);

/// The jobs of a site, with the threads that write them, until it is dropped.
#[derive(Debug)]
pub struct Jobs {
    // Its threads end before the rest is dropped.
    _threads: Threads,
    shared: Arc<Shared>,
}

/// The state that the threads share.
pub(super) struct Shared {
    pub(super) site: String,
    pub(super) intake: Mutex<Intake>,
    pub(super) lts: Lts,
    pub(super) catalogue: Box<dyn Catalogue>,
    pub(super) signal: Signal,
    /// Number of commits.
    pub(super) commits: watch::Sender<u64>,
    /// The last error of each thread, for people.
    pub(super) trouble: Mutex<Option<String>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("site", &self.site).finish_non_exhaustive()
    }
}

/// The effect of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Number of new records.
    pub accepted: u64,
    /// Number of records that were stored already.
    pub duplicates: u64,
    /// Number of records that were refused for good.
    pub refused: u64,
    /// The first of these: their sequences, and the reasons.
    pub refusals: Vec<(i64, String)>,
    /// The highest sequence that is stored.
    pub last: Option<i64>,
}

/// The reason why the rest of a batch was not taken.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The batch is not one of records.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The storage has no room now. The same records can be sent again.
    #[error("{0}")]
    Busy(String),
    /// The producer has begun a later epoch, or its name is not valid.
    #[error("{0}")]
    Producer(String),
}

/// Takes a record with its sequence.
pub type Visit<'v> = dyn FnMut(i64, JobRecord<'_>) -> Result<(), StoreError> + 'v;

/// The parts that are sealed, for the intake.
struct OfSite<'l> {
    site: &'l str,
    lts: &'l Lts,
}

impl SealedParts for OfSite<'_> {
    fn of_job(&self, id: &JobId) -> (u32, Vec<Mark>, JobEntry) {
        // A segment that cannot be read is reported by the sealing thread.
        let marks = self.lts.marks(id).unwrap_or_default();
        let entry = self.lts.entry(self.site, id);
        let entry = entry.unwrap_or_else(|_| JobEntry::new(self.site, id.clone()));
        let next = entry.parts.iter().map(|part| part.number + 1).max().unwrap_or(0);
        (next, marks, entry)
    }
}

impl Jobs {
    /// Opens the storage of a site in a folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// Another process uses the folder, a file cannot be read or written, or no thread can be started.
    pub fn open(
        folder: &Path,
        site: &str,
        limits: IntakeLimits,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let lts = Lts::open(&folder.join("lts"))?;
        let catalogue = SqliteCatalogue::open(&folder.join("catalogue.sqlite"))?;
        let of_site = OfSite { site, lts: &lts };
        let intake = Intake::open(&folder.join("sts"), limits, &of_site, now())?;
        let shared = Arc::new(Shared {
            site: site.to_owned(),
            intake: Mutex::new(intake),
            lts,
            catalogue: Box::new(catalogue),
            signal: Signal::default(),
            commits: watch::Sender::default(),
            trouble: Mutex::default(),
        });
        let threads = Threads::start(&shared)?;
        Ok(Self { _threads: threads, shared })
    }

    /// Stores the records that `each` passes on, with their sequences. They are durable once [`acknowledged`](Self::acknowledged) says so.
    ///
    /// # Errors
    /// A record could not be taken, and those after it were not looked at; those before it are stored.
    pub fn store(
        &self,
        caller: &Caller,
        (producer, epoch): (&str, i64),
        each: impl FnOnce(&mut Visit<'_>) -> Result<(), StoreError>,
    ) -> Result<Stored, StoreError> {
        let producer = producer_of(caller, producer);
        let (mut stored, mut bytes) = (Stored::default(), 0);
        let result = each(&mut |sequence, record| {
            let pushed = Pushed { producer: &producer, epoch, sequence, record };
            match self.shared.push(caller, &pushed) {
                Ok(PushOutcome::Accepted) => {
                    stored.accepted += 1;
                    stored.last = stored.last.max(Some(sequence));
                    bytes += 1 + record.content.len() as u64;
                }
                Ok(PushOutcome::Duplicate) => {
                    stored.duplicates += 1;
                    stored.last = stored.last.max(Some(sequence));
                }
                Err(NotStored::Record(why)) => {
                    stored.refused += 1;
                    if stored.refusals.len() < MAX_NAMED {
                        stored.refusals.push((sequence, why));
                    }
                }
                Err(NotStored::Batch(e)) => return Err(e),
            }
            Ok(())
        });
        if bytes > 0 {
            self.shared.signal.accept(bytes);
        }
        result.map(|()| stored)
    }

    /// Returns the highest sequence of a caller's producer that has reached a level, with all before it.
    pub fn acknowledged(
        &self,
        caller: &Caller,
        (producer, epoch): (&str, i64),
        level: AckLevel,
    ) -> Option<i64> {
        let producer = producer_of(caller, producer);
        let intake = self.shared.intake();
        match level {
            AckLevel::Memory => intake.accepted(&producer, epoch),
            AckLevel::Disk => intake.durable(&producer, epoch),
            AckLevel::Lts => intake.sealed_up_to(&producer, epoch),
        }
    }

    /// Waits until a caller's producer has reached a sequence on the disk, or for a time. Returns true if it has.
    pub fn wait_durable(
        &self,
        caller: &Caller,
        (producer, epoch): (&str, i64),
        sequence: i64,
        most: Duration,
    ) -> bool {
        let until = Instant::now() + most;
        loop {
            let reached = self.acknowledged(caller, (producer, epoch), AckLevel::Disk);
            if reached >= Some(sequence) || Instant::now() >= until {
                return reached >= Some(sequence);
            }
            std::thread::sleep(WAIT_EVERY);
        }
    }

    /// Returns a channel that notifies of each commit.
    pub fn commits(&self) -> watch::Receiver<u64> {
        self.shared.commits.subscribe()
    }

    /// Returns a page of the jobs that the caller may read and that pass a filter. Its visibility is replaced.
    ///
    /// # Errors
    /// The filter is out of bounds, or the catalogue cannot be read.
    pub fn search(
        &self,
        caller: &Caller,
        filter: Filter,
        request: &PageRequest,
    ) -> Result<Page<JobRow>, catalogue::Error> {
        let filter = Filter { visibility: visibility(caller), ..filter };
        self.shared.catalogue.rows(&filter, request)
    }

    /// Returns the entry of a job that the caller may read, as it is now; `None` if there is no such job.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn entry(&self, caller: &Caller, id: &JobId) -> Result<Option<JobEntry>, catalogue::Error> {
        let running = self.shared.intake().job(id).map(|job| job.entry().clone());
        let known = match running {
            Some(entry) => Some(entry),
            None => self.shared.catalogue.get(&Visibility::Everything, &self.shared.site, id)?,
        };
        let visible = visibility(caller);
        Ok(known.filter(|entry| visible.shows(entry.user(), entry.project())))
    }

    /// Returns the records of a job that the caller may read, sealed or not; `None` if there is no such job.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn records(
        &self,
        caller: &Caller,
        id: &JobId,
    ) -> Result<Option<Vec<StoredRecord>>, Box<dyn std::error::Error + Send + Sync>> {
        if self.entry(caller, id)?.is_none() {
            return Ok(None);
        }
        // The intake first: a part that is sealed meanwhile is in both, and is left out.
        let mut intake = self.shared.intake();
        let unsealed = intake.records(id)?;
        let next = intake.job(id).map_or(u32::MAX, |job| job.next_part());
        drop(intake);
        let mut records = Vec::new();
        for part in self.shared.lts.find(id)?.into_iter().filter(|part| part.number < next) {
            let part = self.shared.lts.read_part(id, part.number)?;
            records.extend(part.into_iter().flat_map(|part| part.records));
        }
        records.extend(unsealed);
        Ok(Some(records))
    }

    /// Returns the last error of sealing or of the catalogue, if it is not mended.
    pub fn trouble(&self) -> Option<String> {
        unpoisoned(self.shared.trouble.lock()).clone()
    }

    /// Returns the name of the site.
    pub fn site(&self) -> &str {
        &self.shared.site
    }
}

/// The level at which records are acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckLevel {
    /// The hub has them in memory.
    Memory,
    /// The disk has them.
    #[default]
    Disk,
    /// A sealed segment has them.
    Lts,
}

impl AckLevel {
    /// Returns the level of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "memory" => Some(Self::Memory),
            "disk" => Some(Self::Disk),
            "lts" => Some(Self::Lts),
            _ => None,
        }
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Lts => "lts",
        }
    }
}

/// The reason why a record was not stored.
enum NotStored {
    /// The record is not valid, or the caller may not store it.
    Record(String),
    /// The batch cannot go on.
    Batch(StoreError),
}

impl Shared {
    pub(super) fn intake(&self) -> MutexGuard<'_, Intake> {
        unpoisoned(self.intake.lock())
    }

    fn push(&self, caller: &Caller, pushed: &Pushed<'_>) -> Result<PushOutcome, NotStored> {
        let mut intake = self.intake();
        let of_site = OfSite { site: &self.site, lts: &self.lts };
        if *caller != Caller::Owner {
            self.check(&intake, caller, &pushed.record)
                .map_err(|denied| NotStored::Record(denied.to_string()))?;
        }
        intake.push(pushed, &of_site, now()).map_err(|refusal| match refusal {
            Refusal::Invalid(e) => NotStored::Record(described(&e)),
            Refusal::Full(_) => NotStored::Batch(StoreError::Busy(refusal.to_string())),
            Refusal::Producer | Refusal::Stale { .. } => {
                NotStored::Batch(StoreError::Producer(refusal.to_string()))
            }
        })
    }

    /// Asks the policy whether a caller may store a record.
    fn check(
        &self,
        intake: &Intake,
        caller: &Caller,
        record: &JobRecord<'_>,
    ) -> Result<(), Denied> {
        let known = record.id().ok().and_then(|id| match intake.job(&id) {
            Some(job) => Some(job.entry().clone()),
            None => self.lts.entry(&self.site, &id).ok().filter(|entry| entry.times.is_some()),
        });
        // A new job belongs to the user that its start names.
        let start = match (&known, record.kind) {
            (None, Kind::Start) => record.start().ok(),
            _ => None,
        };
        let owner = match &known {
            Some(entry) => entry.user(),
            None => start.as_ref().map(|start| start.user.as_str()),
        };
        let is_elsewhere = match (caller, &known) {
            (Caller::Node(names), Some(entry)) => {
                let nodes = entry.start.as_ref().map(|start| &start.value.nodes);
                nodes.is_some_and(|nodes| !nodes.is_empty() && !nodes.contains(&names.node))
            }
            _ => false,
        };
        let node = Some(record.node).filter(|node| !node.is_empty());
        may(caller, Action::StoreJob { node, owner, is_elsewhere })
    }
}

/// Returns the name under which the intake knows a caller's producer: no caller can take the name of another one's.
fn producer_of(caller: &Caller, name: &str) -> String {
    match caller {
        Caller::Owner => format!("owner/{name}"),
        Caller::Node(names) => format!("node/{}/{name}", names.node),
        Caller::User(user) => format!("user/{}/{name}", user.name),
        Caller::Invited(_) | Caller::Anybody | Caller::Stranger => format!("other/{name}"),
    }
}

/// Returns an error with its causes.
pub(super) fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    text
}

pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
