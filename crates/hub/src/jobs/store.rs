//! The storage of the jobs of a site.

use std::collections::{BTreeSet, HashMap};
use std::fs::DirBuilder;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skopos_access::{Action, Caller, may};
use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, JobStart, Kind};
use skopos_model::schema::Metric;
use skopos_model::unpoisoned;
use skopos_store::jobs::catalogue;
use skopos_store::jobs::{
    Filter, Intake, IntakeLimits, JobEntry, JobRow, Page, PageRequest, PartsOfJobs, Progress,
    PushOutcome, Pushed, Refusal, Retention, SealedParts, StoredRecord, Unsealed, Visibility,
};
use thiserror::Error;
use tokio::sync::watch;

use super::batch::BatchError;
use super::counts::{Counts, add};
use super::numbers::numbers;
use super::reads::{Question, ReadEntry, Reading, Reads};
use super::replication::Replication;
use super::sealed::{OfSite, ReadParts};
use super::segments::SegmentsPlace;
use super::shared::{Shared, described, is_away, now};
use super::signal::Signal;
use super::threads::Threads;
use crate::catalogue::{CataloguePlace, visibility};

/// The most refused records of a batch that an answer names. Further ones are counted.
const MAX_NAMED: usize = 32;

/// The time by which a record may be ahead of this machine's clock. Clocks of a site differ by less.
const MAX_AHEAD: Duration = Duration::from_secs(300);

/// The most jobs of a batch that are looked up once.
const MAX_KNOWN: usize = 1024;

/// Age after which jobs are removed, if nothing is configured: two years, so that this year's are compared with last
/// year's.
const DEFAULT_AGE: Duration = Duration::from_secs(2 * 366 * 86_400);

/// The most bytes of segments, if nothing is configured: four million jobs of SLAte's evaluation.
const DEFAULT_BYTES: u64 = 100 << 30;

/// Pause of a thread that waits for a commit, which comes after some milliseconds.
const WAIT_EVERY: Duration = Duration::from_millis(2);

/// The jobs of a site, with the threads that write them, until it is dropped.
#[derive(Debug)]
pub struct Jobs {
    // Its threads end before the rest is dropped.
    _threads: Threads,
    pub(super) shared: Arc<Shared>,
    reads: Reads,
}

/// Limits of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobsLimits {
    /// Limits of the short-time storage.
    pub intake: IntakeLimits,
    /// Limits of the long-time storage.
    pub retention: Retention,
}

impl Default for JobsLimits {
    fn default() -> Self {
        let retention = Retention { max_age: DEFAULT_AGE, max_bytes: DEFAULT_BYTES };
        Self { intake: IntakeLimits::default(), retention }
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
    /// The kernel lost records of the stream that were not durable. The producer sends again what was not acknowledged.
    #[error("the disk lost records that were not acknowledged; send them again in a new stream")]
    Lost,
    /// The producer has begun a later epoch, or its name is not valid.
    #[error("{0}")]
    Producer(String),
}

/// The time between two losses of records that were not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session(u64);

/// Takes a record with its sequence.
pub type Visit<'v> = dyn FnMut(i64, JobRecord<'_>) -> Result<(), StoreError> + 'v;

impl Jobs {
    /// Opens the storage of a site in a folder, and creates it if it does not exist. If the catalogue is in a database that
    /// is away, records are taken meanwhile.
    ///
    /// # Errors
    /// Another process uses the folder, a file cannot be read or written, the database is not fit for a catalogue, or no
    /// thread can be started.
    pub fn open(
        folder: &Path,
        site: &str,
        limits: JobsLimits,
        (segments, catalogue): (&SegmentsPlace, &CataloguePlace),
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        check_site(folder, site)?;
        let lts = segments.open()?;
        let may_be_away = catalogue.is_database();
        let catalogue = catalogue.open()?;
        let of_site = OfSite { site, lts: &lts };
        let intake = Intake::open(&folder.join("sts"), limits.intake, &of_site, now())?;
        let shared = Arc::new(Shared {
            site: site.to_owned(),
            intake: Mutex::new(intake),
            lts,
            catalogue,
            signal: Signal::default(),
            retention: limits.retention,
            counts: Counts::default(),
            commits: watch::Sender::default(),
            reopened: AtomicU64::new(0),
            awaited: AtomicUsize::new(0),
            trouble: Mutex::default(),
            replication: Replication::default(),
        });
        let caught_up = shared.catch_up();
        let is_behind = matches!(&caught_up, Err(e) if may_be_away && is_away(&**e));
        if !is_behind {
            caught_up?;
        }
        let reads = Reads::open(&folder.join("reads"))?;
        let threads = Threads::start(&shared, is_behind)?;
        Ok(Self { _threads: threads, shared, reads })
    }

    /// Stores the records that `each` passes on, with their sequences. They are durable once [`progress`](Self::progress) says so.
    ///
    /// # Errors
    /// A record could not be taken, and those after it were not looked at; those before it are stored.
    pub fn store(
        &self,
        caller: &Caller,
        producer: (&str, i64),
        each: impl FnOnce(&mut Visit<'_>) -> Result<(), StoreError>,
    ) -> Result<Stored, StoreError> {
        self.store_in(self.session(), caller, producer, each)
    }

    /// Returns the session of a stream that begins now. It ends when the storage loses records that are not durable.
    pub fn session(&self) -> Session {
        Session(self.shared.reopened.load(Ordering::Relaxed))
    }

    /// Stores records of a stream. An acknowledgement covers all records of the stream up to a sequence, so a stream whose
    /// session has ended stores no more.
    ///
    /// # Errors
    /// The same as for [`store`](Self::store), and [`StoreError::Lost`].
    pub fn store_in(
        &self,
        session: Session,
        caller: &Caller,
        (producer, epoch): (&str, i64),
        each: impl FnOnce(&mut Visit<'_>) -> Result<(), StoreError>,
    ) -> Result<Stored, StoreError> {
        let producer = producer_of(caller, producer);
        let (mut stored, mut bytes) = (Stored::default(), 0);
        let mut known = HashMap::new();
        let result = each(&mut |sequence, record| {
            let pushed = Pushed { producer: &producer, epoch, sequence, record };
            match self.shared.push((session, caller), &pushed, &mut known) {
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
        if bytes == 0 && stored.duplicates > 0 {
            // A commit acknowledges records whose log is gone: no other record may come that causes one.
            let reached = self.shared.intake().progress(&producer).map(|progress| progress.get());
            bytes = u64::from(reached.is_some_and(|reached| Some(reached.durable) < stored.last));
        }
        if bytes > 0 {
            self.shared.signal.accept(bytes);
        }
        let counts = &self.shared.counts;
        add(&counts.records, stored.accepted);
        add(&counts.duplicates, stored.duplicates);
        add(&counts.refused, stored.refused);
        if matches!(result, Err(StoreError::Busy(_))) {
            add(&counts.delayed, 1);
        }
        result.map(|()| stored)
    }

    /// Returns the numbers of a storage with their metrics, always in the same order; zeros if none is open.
    pub fn numbers(jobs: Option<&Self>) -> [(&'static Metric, u64); 15] {
        numbers(jobs.map(|jobs| (&*jobs.shared, jobs.dropped_reads())))
    }

    /// Returns the progress of a caller's producer, once it has stored a record. Blocks for the time of a commit.
    pub fn progress(&self, caller: &Caller, producer: &str) -> Option<Arc<Progress>> {
        self.shared.intake().progress(&producer_of(caller, producer))
    }

    /// Notes that a stream waits until its records are sealed, until the result is dropped. They are sealed at once when
    /// they are due.
    pub fn await_sealed(&self) -> Awaiting {
        self.shared.awaited.fetch_add(1, Ordering::Relaxed);
        Awaiting(self.shared.clone())
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
        let Some(progress) = self.progress(caller, producer) else { return false };
        loop {
            let reached = progress.get();
            let is_durable = reached.epoch == epoch && reached.durable >= sequence;
            if is_durable || Instant::now() >= until {
                return is_durable;
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

    /// Returns the same page as [`search`](Self::search), with whole entries.
    ///
    /// # Errors
    /// The filter is out of bounds, or the catalogue cannot be read.
    pub fn search_entries(
        &self,
        caller: &Caller,
        filter: Filter,
        request: &PageRequest,
    ) -> Result<Page<JobEntry>, catalogue::Error> {
        let filter = Filter { visibility: visibility(caller), ..filter };
        self.shared.catalogue.entries(&filter, request)
    }

    /// Returns the entry of a job that the caller may read, as it is now; `None` if there is no such job.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn entry(&self, caller: &Caller, id: &JobId) -> Result<Option<JobEntry>, catalogue::Error> {
        let running = self.shared.intake().job(id).map(|job| job.entry().clone());
        let known = match running {
            Some(entry) => Some(entry),
            None => self.shared.finished(id)?,
        };
        let visible = visibility(caller);
        Ok(known.filter(|entry| visible.shows(entry.user(), entry.project())))
    }

    /// Returns the pieces of a job that the caller may read, in their order; none if there is no such job.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn pieces(
        &self,
        caller: &Caller,
        id: &JobId,
    ) -> Result<Vec<Piece>, Box<dyn std::error::Error + Send + Sync>> {
        if self.entry(caller, id)?.is_none() {
            return Ok(Vec::new());
        }
        // The intake first: a part that is sealed meanwhile is in both, and is left out.
        let (unsealed, next) = {
            let mut intake = self.shared.intake();
            let next = intake.job(id).map_or(u32::MAX, |job| job.next_part());
            (intake.unsealed(id)?, next)
        };
        let parts = self.shared.lts.find(id)?.into_iter().filter(|part| part.number < next);
        let parts = parts.map(|part| Piece(Place::Part(part.number)));
        Ok(parts.chain([Piece(Place::Unsealed(unsealed))]).collect())
    }

    /// Reads a piece of a job.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(
        &self,
        id: &JobId,
        piece: Piece,
    ) -> Result<Vec<StoredRecord>, Box<dyn std::error::Error + Send + Sync>> {
        match piece.0 {
            Place::Unsealed(records) => Ok(records.read()?),
            Place::Part(number) => {
                let part = self.shared.lts.read_part(id, number)?;
                Ok(part.map(|part| part.records).unwrap_or_default())
            }
        }
    }

    /// Returns the sealed parts of jobs that the caller may read and that `is_named`, with the names of their segments. Jobs
    /// without a record in `times` are left out.
    ///
    /// # Errors
    /// There are more than `most` parts, or the catalogue or a segment cannot be read.
    pub fn sealed_parts(
        &self,
        caller: &Caller,
        times: Option<&RangeInclusive<Timestamp>>,
        most: usize,
        is_named: &dyn Fn(&JobId) -> bool,
    ) -> Result<PartsOfJobs, Box<dyn std::error::Error + Send + Sync>> {
        let times = times.map(|range| (range.start().as_nanos(), range.end().as_nanos()));
        let visible = match visibility(caller) {
            Visibility::Everything => None,
            Visibility::Nothing => return Ok(PartsOfJobs::new()),
            own @ Visibility::Own { .. } => Some(self.visible_ids(own)?),
        };
        let is_wanted = |id: &JobId| {
            is_named(id) && visible.as_ref().is_none_or(|visible| visible.contains(id))
        };
        Ok(self.shared.lts.parts(times, most, &is_wanted)?)
    }

    /// Returns the ids of all jobs of this site that are visible.
    fn visible_ids(&self, visibility: Visibility) -> Result<BTreeSet<JobId>, catalogue::Error> {
        let site = Some(self.shared.site.clone());
        let filter = Filter { site, ..Filter::new(visibility) };
        let (mut ids, mut request) = (BTreeSet::new(), PageRequest::default());
        loop {
            let page = self.shared.catalogue.rows(&filter, &request)?;
            ids.extend(page.items.into_iter().map(|row| row.id));
            request.after = page.next;
            if request.after.is_none() {
                return Ok(ids);
            }
        }
    }

    /// Reads a sealed part for a caller whom the policy has allowed it; `None` if there is none, or if it is not in the
    /// segment `only`.
    pub(super) fn read_sealed(
        &self,
        id: &JobId,
        number: u32,
        only: Option<&str>,
    ) -> Result<Option<Vec<StoredRecord>>, skopos_store::history::Error> {
        let lts = &self.shared.lts;
        if let Some(only) = only
            && !lts.find(id)?.iter().any(|part| part.number == number && part.segment == only)
        {
            return Ok(None);
        }
        Ok(lts.read_part(id, number)?.map(|part| part.records))
    }

    /// Begins a question of a caller. It is in the log of reads once the result is dropped.
    pub fn reading(&self, caller: &Caller, question: Question) -> Reading {
        self.reads.reading(caller, question)
    }

    /// Passes the entries of the log of reads to `visit`, the oldest first.
    ///
    /// # Errors
    /// The policy refuses, or the log cannot be read.
    pub fn log_of_reads(
        &self,
        caller: &Caller,
        visit: &mut dyn FnMut(ReadEntry),
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        may(caller, Action::ReadLog)?;
        Ok(self.reads.entries(visit)?)
    }

    /// Returns the number of entries that the log of reads had no room for.
    pub fn dropped_reads(&self) -> u64 {
        self.reads.dropped()
    }

    /// Returns the last error of a commit, of sealing, of the catalogue or of the log of reads, if it is not mended.
    pub fn trouble(&self) -> Option<String> {
        let trouble = unpoisoned(self.shared.trouble.lock()).iter().flatten().next().cloned();
        trouble.or_else(|| self.reads.trouble())
    }

    /// Returns the name of the site.
    pub fn site(&self) -> &str {
        &self.shared.site
    }
}

/// A stream that waits until its records are sealed.
#[derive(Debug)]
pub struct Awaiting(Arc<Shared>);

impl Drop for Awaiting {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A piece of a job that a caller may read: a sealed part, or the records that are not sealed.
#[derive(Debug)]
pub struct Piece(Place);

#[derive(Debug)]
enum Place {
    Part(u32),
    Unsealed(Unsealed),
}

/// The level at which records are acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckLevel {
    /// The hub has them in memory.
    Memory,
    /// The disk has them.
    #[default]
    Disk,
    /// The disk has them, and that of the replica.
    Replica,
    /// A sealed segment has them.
    Lts,
}

impl AckLevel {
    /// Returns the last sequence of an epoch that has reached the level; `accepted` is the last one that was taken.
    pub fn reached(self, progress: &Progress, epoch: i64, accepted: Option<i64>) -> Option<i64> {
        let reached = progress.get();
        let last = match self {
            Self::Memory => return accepted,
            Self::Disk => reached.durable,
            Self::Replica => reached.replica,
            Self::Lts => reached.sealed,
        };
        Some(last).filter(|last| reached.epoch == epoch && *last > i64::MIN)
    }

    /// Returns the level of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "memory" => Some(Self::Memory),
            "disk" => Some(Self::Disk),
            "replica" => Some(Self::Replica),
            "lts" => Some(Self::Lts),
            _ => None,
        }
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Replica => "replica",
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
    fn push(
        &self,
        (session, caller): (Session, &Caller),
        pushed: &Pushed<'_>,
        known: &mut HashMap<JobId, Known>,
    ) -> Result<PushOutcome, NotStored> {
        if *caller != Caller::Owner {
            self.check(caller, &pushed.record, known)?;
        }
        let of_site = OfSite { site: &self.site, lts: &self.lts };
        let mut intake = self.intake();
        let unknown = intake.unknown_job(pushed);
        let read = if let Some(id) = unknown {
            // No other producer waits while segments are read.
            drop(intake);
            let read = ReadParts::read(&of_site, id);
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
        intake.push(pushed, of_site, now()).map_err(|refusal| match refusal {
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
        caller: &Caller,
        record: &JobRecord<'_>,
        known: &mut HashMap<JobId, Known>,
    ) -> Result<(), NotStored> {
        let refused = |why: String| NotStored::Record(why);
        let id = record.id().map_err(|e| refused(e.to_string()))?;
        if record.time.since(now()) > MAX_AHEAD {
            // The latest start of a job counts, so none may be later than all others for ever.
            return Err(refused("the time of the record is in the future".to_owned()));
        }
        if !known.contains_key(&id) {
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(id.clone(), self.known(&id)?);
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
    fn finished(&self, id: &JobId) -> Result<Option<JobEntry>, catalogue::Error> {
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
    fn known(&self, id: &JobId) -> Result<Known, NotStored> {
        if let Some(job) = self.intake().job(id) {
            return Ok(Known::of(job.entry()));
        }
        let entry = self.finished(id);
        let busy = |e: catalogue::Error| NotStored::Batch(StoreError::Busy(described(&e)));
        Ok(entry.map_err(busy)?.as_ref().map(Known::of).unwrap_or_default())
    }
}

/// The part of a job's entry that the policy needs.
#[derive(Clone, Debug, Default)]
struct Known {
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

/// Notes the site of a folder, and refuses another one: a job of one site would get the name of the other.
fn check_site(folder: &Path, site: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let path = folder.join("site");
    match std::fs::read_to_string(&path) {
        Ok(known) if known.trim_end() == site => Ok(()),
        Ok(known) => {
            let known = known.trim_end();
            Err(format!("they belong to the site `{known}`, and this hub is one of `{site}`")
                .into())
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            Ok(std::fs::write(&path, format!("{site}\n"))?)
        }
        Err(e) => Err(e.into()),
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
