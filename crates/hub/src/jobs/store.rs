//! The storage of the jobs of a site.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skopos_access::{Action, Caller, may};
use skopos_model::Timestamp;
use skopos_model::job::JobId;
use skopos_model::schema::Metric;
use skopos_model::unpoisoned;
use skopos_store::history;
use skopos_store::jobs::catalogue;
use skopos_store::jobs::{
    Filter, Intake, IntakeLimits, JobEntry, JobRow, Page, PageRequest, PartsOfJobs, Progress,
    Retention, StoredRecord, Unsealed, Visibility,
};
use tokio::sync::watch;

use super::copy_of::CopyOf;
use super::looked_up::LookedUp;
use super::numbers::numbers;
use super::reads::{Question, ReadEntry, Reading, Reads};
use super::sealed::OfSite;
use super::segments::SegmentsPlace;
use super::shared::{Shared, is_away, now};
use super::stored::{Lookup, Session, StoreError, Stored, Visit};
use super::storing::{Storing, WAIT_EVERY, producer_of};
use super::threads::Threads;
use super::troubles::Work;
use super::turn::{StoreTurn, WaitingBytes};
use crate::catalogue::{CataloguePlace, visibility};
use crate::turns::block_on;

/// Age after which jobs are removed, if nothing is configured: two years, so that this year's are compared with last
/// year's.
const DEFAULT_AGE: Duration = Duration::from_secs(2 * 366 * 86_400);

/// The most bytes of segments, if nothing is configured: four million jobs of SLAte's evaluation.
const DEFAULT_BYTES: u64 = 100 << 30;

/// The jobs of a site, with the threads that write them, until it is dropped.
#[derive(Debug)]
pub struct Jobs {
    // Its threads end before the rest is dropped.
    _threads: Option<Threads>,
    pub(super) shared: Arc<Shared>,
    reads: Arc<Reads>,
    /// The hub of which this is a copy, which is only read.
    copy: Option<CopyOf>,
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
        let content = (Arc::new(Mutex::new(intake)), Arc::new(lts));
        let shared = Arc::new(Shared::new(site, content, catalogue, limits.retention));
        let caught_up = shared.catch_up();
        let is_behind = matches!(&caught_up, Err(e) if may_be_away && is_away(&**e));
        if !is_behind {
            caught_up?;
        }
        let reads = Arc::new(Reads::open(&folder.join("reads"))?);
        let threads = Threads::start(&shared, is_behind)?;
        Ok(Self { _threads: Some(threads), shared, reads, copy: None })
    }

    /// Returns the copy of another hub's jobs, which is only read.
    pub(super) fn of_copy(shared: Arc<Shared>, reads: Arc<Reads>, copy: CopyOf) -> Self {
        Self { _threads: None, shared, reads, copy: Some(copy) }
    }

    /// Returns the hub of which this is a copy.
    pub fn copy_of(&self) -> Option<&str> {
        self.copy.as_ref().map(|copy| copy.hub.as_str())
    }

    /// Returns the number of the storage of which this is a copy.
    pub fn storage(&self) -> Option<u64> {
        self.copy.as_ref().map(|copy| copy.storage)
    }

    /// Stores the records that `each` passes on, with their sequences, in as many turns as they take. They are durable once
    /// [`progress`](Self::progress) says so. Blocks.
    ///
    /// # Errors
    /// A record could not be taken, and those after it were not looked at; those before it are stored.
    pub fn store(
        &self,
        caller: &Caller,
        producer: (&str, i64),
        each: impl FnOnce(&mut Visit<'_>) -> Result<(), StoreError>,
    ) -> Result<Stored, StoreError> {
        let turn = block_on(self.shared.turn(caller, 0));
        let (stream, mut looked_up) = ((self.session(), caller), LookedUp::default());
        let mut storing = Storing::new(&self.shared, stream, producer, turn, &mut looked_up);
        let result = each(&mut |sequence, record| {
            if storing.is_over() {
                storing.next_turn();
            }
            storing.take_on_own_thread(sequence, record)
        });
        let stored = storing.finish(false);
        result.map(|()| stored)
    }

    /// Returns the session of a stream that begins now. It ends when the storage loses records that are not durable.
    pub fn session(&self) -> Session {
        Session(self.shared.reopened.load(Ordering::Relaxed))
    }

    /// Waits for the turn of a stream of a caller. `owed` are the bytes that its last turn had too many
    /// ([`Stored::owed`]).
    pub async fn turn(&self, caller: &Caller, owed: u64) -> StoreTurn {
        self.shared.turn(caller, owed).await
    }

    /// Counts bytes of a stream that wait for its turns, until the result is dropped.
    pub fn waiting(&self, bytes: u64) -> WaitingBytes {
        WaitingBytes::new(self.shared.clone(), bytes)
    }

    /// Stores records of a stream, as many as its turn allows. Returns the effect, and the reason for which the others were not
    /// taken. If that is [`StoreError::Lookup`], the stream calls [`look_up`](Self::look_up) before its next turn. An
    /// acknowledgement covers all records of the stream up to a sequence, so a stream whose session has ended
    /// stores no more ([`StoreError::Lost`]). Blocks.
    pub fn store_in(
        &self,
        turn: StoreTurn,
        (session, caller): (Session, &Caller),
        producer: (&str, i64),
        looked_up: &mut LookedUp,
        each: impl FnOnce(&mut Visit<'_>) -> Result<(), StoreError>,
    ) -> (Stored, Option<StoreError>) {
        let stream = (session, caller);
        let mut storing = Storing::new(&self.shared, stream, producer, turn, looked_up);
        let result = each(&mut |sequence, record| match storing.is_over() {
            true => Err(StoreError::TurnOver),
            false => storing.take(sequence, record),
        });
        let steps_aside = matches!(result, Err(StoreError::Lookup(_)));
        (storing.finish(steps_aside), result.err())
    }

    /// Looks up a job before its record is stored. A stream does so without a turn, and waits for its next turn without a
    /// thread: so the stream that has the turn finds one. Blocks.
    ///
    /// # Errors
    /// The catalogue or a segment cannot be read now.
    pub fn look_up(&self, lookup: &Lookup, looked_up: &mut LookedUp) -> Result<(), StoreError> {
        self.shared.look_up(lookup, looked_up)
    }

    /// Returns the numbers of a storage with their metrics, always in the same order; zeros if none is open.
    pub fn numbers(jobs: Option<&Self>) -> [(&'static Metric, u64); 18] {
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
        let mut page = self.shared.catalogue.rows(&filter, request)?;
        if let Some(copy) = &self.copy {
            page.items.retain(|row| !copy.hides(&self.shared, &row.id));
        }
        Ok(page)
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
        let mut page = self.shared.catalogue.entries(&filter, request)?;
        if let Some(copy) = &self.copy {
            page.items.retain(|entry| !copy.hides_entry(entry));
        }
        Ok(page)
    }

    /// Returns the entry of a job that the caller may read, as it is now; `None` if there is no such job.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn entry(&self, caller: &Caller, id: &JobId) -> Result<Option<JobEntry>, catalogue::Error> {
        let known = match &self.copy {
            Some(copy) => copy.entry(&self.shared, id)?,
            None => {
                let running = self.shared.intake().job(id).map(|job| job.entry().clone());
                running.map_or_else(|| self.shared.finished(id), |entry| Ok(Some(entry)))?
            }
        };
        let visible = visibility(caller);
        Ok(known.filter(|entry| visible.shows(entry.user(), entry.project())))
    }

    /// Returns those of some jobs that the caller may read. A job that does not exist is one that the caller may not read. The
    /// catalogue is asked for all of them together; of a copy each job is looked up on its own.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn visible(
        &self,
        caller: &Caller,
        ids: &[JobId],
    ) -> Result<BTreeSet<JobId>, catalogue::Error> {
        let (mut visible, mut finished) = (BTreeSet::new(), Vec::new());
        if self.copy.is_some() {
            // A job of the copy that this hub has itself is known by its start, which is in its entry.
            for id in ids {
                if self.entry(caller, id)?.is_some() {
                    visible.insert(id.clone());
                }
            }
            return Ok(visible);
        }
        let visibility = visibility(caller);
        let shows = |entry: &JobEntry| visibility.shows(entry.user(), entry.project());
        {
            let intake = self.shared.intake();
            for id in ids {
                match intake.job(id).map(|job| job.entry()) {
                    Some(entry) if shows(entry) => {
                        visible.insert(id.clone());
                    }
                    Some(_) => {}
                    None => finished.push(id.clone()),
                }
            }
        }
        // Without such jobs the catalogue is not asked: it may be away.
        for ids in finished.chunks(catalogue::MAX_LOOKED_UP) {
            match self.shared.catalogue.visible(&visibility, &self.shared.site, ids) {
                Ok(found) => visible.extend(found),
                // The segments tell, as long as the catalogue is away.
                Err(e) if is_away(&e) => {
                    for id in ids {
                        match self.shared.sealed_entry(id) {
                            Ok(entry) if entry.as_ref().is_some_and(shows) => {
                                visible.insert(id.clone());
                            }
                            Ok(_) => {}
                            Err(_) => return Err(e),
                        }
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(visible)
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
    /// without a record in `times` are left out. So are segments whose list of parts is damaged; their errors are returned,
    /// too.
    ///
    /// # Errors
    /// There are more than `most` parts, or the catalogue or a segment cannot be read.
    pub fn sealed_parts(
        &self,
        caller: &Caller,
        times: Option<&RangeInclusive<Timestamp>>,
        most: usize,
        is_named: &dyn Fn(&JobId) -> bool,
    ) -> Result<(PartsOfJobs, Vec<history::Error>), Box<dyn std::error::Error + Send + Sync>> {
        let times = times.map(|range| (range.start().as_nanos(), range.end().as_nanos()));
        let visible = match visibility(caller) {
            Visibility::Everything => None,
            Visibility::Nothing => return Ok(Default::default()),
            own @ Visibility::Own { .. } => Some(self.visible_ids(own)?),
        };
        let is_wanted = |id: &JobId| {
            is_named(id)
                && visible.as_ref().is_none_or(|visible| visible.contains(id))
                && self.copy.as_ref().is_none_or(|copy| !copy.hides(&self.shared, id))
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
    pub(crate) fn read_sealed(
        &self,
        id: &JobId,
        number: u32,
        only: Option<&str>,
    ) -> Result<Option<Vec<StoredRecord>>, history::Error> {
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
        let trouble = unpoisoned(self.shared.troubles.lock()).all().next().cloned();
        trouble.or_else(|| self.reads.trouble())
    }

    /// Returns a text about jobs that a search lacks, for people, while the catalogue cannot be written.
    pub fn unlisted(&self) -> Option<String> {
        let is_behind = unpoisoned(self.shared.troubles.lock()).has(Work::Telling);
        is_behind.then(|| "jobs that changed since the catalogue cannot be written".to_owned())
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
