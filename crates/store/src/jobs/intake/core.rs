//! The intake itself.

use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, RecordError};
use thiserror::Error as ThisError;

use super::jobs::{OpenJob, Place, SealedParts};
use super::limits::{
    CAPACITY, IntakeLimits, MAX_LOG_BYTES, MAX_PRODUCER_BYTES, MAX_PRODUCERS, SHARE_OF_FREE,
};
use super::logs::{LogUse, Logs};
use super::producers::{Producer, Producers, Progress, Slot, description};
use super::recover::{Recovered, recover};
use super::unsealed::{UnreadPart, Unsealed};
use crate::jobs::entry::JobEntry;
use crate::jobs::part::{JobPart, Mark, PartRef};
use crate::log::{Damage, Disk, Error, Level, Lock, LogWriter, OsDisk, io_at};

/// The short-time storage of a site. Only one process at a time can have the intake of a folder.
#[derive(Debug)]
pub struct Intake {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    limits: IntakeLimits,
    /// The lock of the folder.
    lock: Lock,
    log: LogWriter,
    pub(super) generation: u64,
    pub(super) logs: Logs,
    pub(super) producers: Producers,
    pub(super) jobs: BTreeMap<JobId, OpenJob>,
    /// Jobs that the catalogue is to be told about, in the order of their news.
    pub(super) news: VecDeque<JobId>,
    /// True if the last frame may not have been synced.
    pub(super) is_unsynced: bool,
    /// True if records came again that are sealed: the replica may have them.
    pub(super) has_resealed: bool,
    /// The length of the current log that a sync has made durable.
    pub(super) synced: u64,
    /// True once the disk has the producers with which the current log begins. Until then the older logs stay, which know
    /// them too.
    has_producers: bool,
    /// The binary form of the record that is pushed.
    content: Vec<u8>,
    torn_bytes: u64,
    damaged: Vec<Damage>,
}

/// A record with its producer.
#[derive(Clone, Copy, Debug)]
pub struct Pushed<'b> {
    /// Name of the producer.
    pub producer: &'b str,
    /// The run of the producer.
    pub epoch: i64,
    /// The number of the record in the epoch; numbers ascend and may have gaps.
    pub sequence: i64,
    /// The record.
    pub record: JobRecord<'b>,
}

/// The effect of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The next commit writes the record.
    Accepted,
    /// The record is stored already.
    Duplicate,
}

/// The reason why a record was not taken.
#[derive(Debug, PartialEq, ThisError)]
pub enum Refusal {
    /// The record is not valid. Sending it again does not help.
    #[error(transparent)]
    Invalid(#[from] RecordError),
    /// The name of the producer is empty, too long, or has a control character.
    #[error("the name of the producer is empty, too long, or has a control character")]
    Producer,
    /// A later run of the producer has begun: the producer has lost count, or two programs have its name.
    #[error(
        "the producer has begun its epoch {known} since, and this record is of the epoch {epoch}; \
         a new run of a producer takes a greater one"
    )]
    Stale {
        /// The epoch of the record.
        epoch: i64,
        /// The latest epoch.
        known: i64,
    },
    /// The storage has no room until parts are sealed or the disk has more of it. The record can be sent again.
    #[error("the storage is full: {0}")]
    Full(&'static str),
    /// Too much waits for the next commit. The record can be sent again after that.
    #[error("too much waits for the disk")]
    Uncommitted,
    /// The caller of the producer has its share of the room, and waits until its records are sealed. Other callers do not.
    #[error("its caller has its share of the room for {0} that are not sealed")]
    Share(&'static str),
}

impl Refusal {
    /// Returns true if the same record may be taken later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Full(_) | Self::Uncommitted | Self::Share(_))
    }
}

impl Intake {
    /// Opens the intake of a folder, and creates it if it does not exist. Reads the logs that an earlier process left,
    /// and leaves out the records that `sealed` has.
    ///
    /// # Errors
    /// [`Error::Busy`]; a file cannot be read or written; a later version of Skopos wrote a log.
    pub fn open(
        folder: &Path,
        limits: IntakeLimits,
        sealed: &dyn SealedParts,
        now: Timestamp,
    ) -> Result<Self, Error> {
        Self::on(Arc::new(OsDisk), folder, limits, sealed, now)
    }

    pub(in crate::jobs) fn on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        limits: IntakeLimits,
        sealed: &dyn SealedParts,
        now: Timestamp,
    ) -> Result<Self, Error> {
        disk.make_folder(folder).map_err(io_at(folder, "the folder cannot be made"))?;
        let path = folder.join("lock");
        let lock = disk.lock(&path).map_err(io_at(&path, "it cannot be locked"))?;
        let lock = lock.ok_or_else(|| Error::Busy(folder.to_path_buf()))?;
        let mut intake = Self::recovered(disk, folder, limits, sealed, now)?;
        intake.lock = lock;
        Ok(intake)
    }

    /// Reads the logs again, after the kernel lost some of the newest one. Records that were not durable are gone.
    ///
    /// # Errors
    /// The same as for [`open`](Self::open), and nothing changes.
    pub fn reopen(&mut self, sealed: &dyn SealedParts, now: Timestamp) -> Result<(), Error> {
        let mut intake =
            Self::recovered(self.disk.clone(), &self.folder, self.limits, sealed, now)?;
        intake.lock = std::mem::take(&mut self.lock);
        intake.replicated_as(self);
        *self = intake;
        Ok(())
    }

    /// Reads the logs of a folder that is locked.
    fn recovered(
        disk: Arc<dyn Disk>,
        folder: &Path,
        limits: IntakeLimits,
        sealed: &dyn SealedParts,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let recovered = recover(&disk, folder, sealed, now)?;
        let Recovered {
            mut logs, mut producers, mut jobs, newest, last, torn_bytes, damaged, ..
        } = recovered;
        // A job of which all records are sealed is not open.
        jobs.retain(|_, job| job.unsealed() > 0);
        jobs.values().for_each(|job| producers.add_firsts(&job.firsts));
        // The newest log may not have been synced. A damaged one is not continued, so its records are written again.
        let rescued = newest.is_none().then_some(last);
        let (generation, log) = match newest {
            Some((generation, log)) => {
                // Its bytes are those of the writer.
                if let Some(current) = logs.uses.get_mut(&generation) {
                    current.bytes = 0;
                }
                (generation, log)
            }
            None => (last + 1, begin(&disk, &mut logs, folder, last + 1)?),
        };
        disk.sync_folder(folder).map_err(io_at(folder, "the folder cannot be synced"))?;
        let mut intake = Self {
            disk,
            folder: folder.to_path_buf(),
            limits,
            lock: Lock::default(),
            log,
            generation,
            logs,
            producers,
            news: jobs.keys().cloned().collect(),
            jobs,
            is_unsynced: false,
            has_resealed: false,
            synced: 0,
            has_producers: false,
            content: Vec::new(),
            torn_bytes,
            damaged,
        };
        if let Some(generation) = rescued {
            intake.rescue(generation)?;
        }
        intake.describe_all();
        // Only what is on the disk may be acknowledged to a producer that sends it again.
        intake.commit()?;
        intake.producers.all_durable();
        intake.logs.remove_sealed(intake.generation)?;
        Ok(intake)
    }

    /// Writes the records of another log to the current one.
    fn rescue(&mut self, generation: u64) -> Result<(), Error> {
        let ids: Vec<JobId> = self.jobs.keys().cloned().collect();
        let mut wanted: Vec<(u64, usize, usize)> = Vec::new();
        for (at, job) in self.jobs.values().enumerate() {
            let places = job.places.iter().enumerate();
            let own = places.filter(|(_, place)| place.generation == generation);
            wanted.extend(own.map(|(number, place)| (place.at, at, number)));
        }
        // In the order of the log, in which the sequences of each producer ascend.
        wanted.sort_unstable();
        let mut indices: BTreeMap<(Slot, i64), u32> = BTreeMap::new();
        for (_, at, number) in wanted {
            let job = self.jobs.get_mut(&ids[at]);
            let Some(place) = job.and_then(|job| job.places.get_mut(number)) else { continue };
            let content = self.logs.read(place, self.generation)?;
            let Some(producer) = self.producers.get(place.producer) else { continue };
            // The log begins before their first record.
            let description = description(&producer.name, i64::MIN);
            let mut append = |log: &mut LogWriter| {
                let index = match indices.get(&(place.producer, place.epoch)) {
                    Some(index) => *index,
                    None => log.describe(place.epoch, &description)?,
                };
                indices.insert((place.producer, place.epoch), index);
                log.append(index, place.sequence, &content)
            };
            let mut found = append(&mut self.log);
            if found.is_none() {
                self.log.commit(Level::Disk)?;
                found = append(&mut self.log);
            }
            if let Some(at) = found {
                self.logs.removed(place.generation);
                (place.generation, place.at) = (self.generation, at);
                self.logs.added(place.generation);
            }
        }
        Ok(())
    }

    /// Returns the number of bytes of a torn log that [`open`](Self::open) cut off: they were never acknowledged.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Returns the damaged logs that [`open`](Self::open) found.
    pub fn damaged(&self) -> &[Damage] {
        &self.damaged
    }

    /// Returns the job of a record if [`push`](Self::push) would ask for its sealed parts.
    pub fn unknown_job(&self, pushed: &Pushed<'_>) -> Option<JobId> {
        let known = self.producers.find(pushed.producer).and_then(|slot| self.producers.get(slot));
        let number = (pushed.epoch, pushed.sequence);
        if known.is_some_and(|producer| number <= (producer.epoch, producer.last)) {
            return None;
        }
        pushed.record.id().ok().filter(|id| !self.jobs.contains_key(id))
    }

    /// Appends a record. It is in memory until the next [`commit`](Self::commit).
    ///
    /// # Errors
    /// The record is not taken, and nothing changes.
    pub fn push(
        &mut self,
        pushed: &Pushed<'_>,
        sealed: &dyn SealedParts,
        now: Timestamp,
    ) -> Result<PushOutcome, Refusal> {
        let Pushed { producer, epoch, sequence, record } = pushed;
        let known = self.producers.find(producer);
        if let Some(producer) = known.and_then(|slot| self.producers.get(slot)) {
            let known = producer.epoch;
            match epoch.cmp(&known) {
                Ordering::Less => return Err(Refusal::Stale { epoch: *epoch, known }),
                Ordering::Equal if *sequence <= producer.last => return Ok(PushOutcome::Duplicate),
                _ => {}
            }
        }
        record.check()?;
        let id = record.id().map_err(RecordError::from)?;
        self.check_room(&id)?;
        let is_new = !self.jobs.contains_key(&id);
        let new = match is_new {
            true => Some(
                sealed
                    .of_job(&id)
                    .map_err(|_| Refusal::Full("the sealed parts of the job cannot be read"))?,
            ),
            false => None,
        };
        let slot = match known {
            Some(slot) => slot,
            None => self.admit(producer, *epoch, now)?,
        };
        let (producer, epoch, sequence) = (slot, *epoch, *sequence);
        if let Some((next_part, marks, entry)) = new {
            self.jobs.insert(id.clone(), OpenJob::new(next_part, marks, entry));
        }
        let pushed = self.append(&id, record, (producer, epoch, sequence), now);
        if is_new && !matches!(pushed, Ok(PushOutcome::Accepted)) {
            self.jobs.remove(&id);
        }
        pushed
    }

    /// Appends a record of an open job.
    fn append(
        &mut self,
        id: &JobId,
        record: &JobRecord<'_>,
        (producer, epoch, sequence): (Slot, i64, i64),
        now: Timestamp,
    ) -> Result<PushOutcome, Refusal> {
        let name = self.producers.get(producer).map(|known| known.name.as_str());
        let job = self.jobs.get(id).zip(name);
        // Its producer did not get the acknowledgement, and the log that had the record is gone.
        if job.is_some_and(|(job, name)| job.has_sealed(name, epoch, sequence)) {
            self.index_of(producer, epoch)?;
            if let Some(known) = self.producers.get_mut(producer) {
                (known.last, known.seen) = (sequence, now);
            }
            // The next commit acknowledges it.
            self.producers.touch(producer);
            self.has_resealed = true;
            return Ok(PushOutcome::Duplicate);
        }
        let index = self.index_of(producer, epoch)?;
        self.content.clear();
        record.write(&mut self.content);
        let at = self.log.append(index, sequence, &self.content);
        let at = at.ok_or(Refusal::Uncommitted)?;
        let (generation, length) = (self.generation, self.content.len() as u32);
        let place = Place { generation, at, length, producer, epoch, sequence };
        let added = self.jobs.get_mut(id).map(|job| job.add(record, place, now));
        if added.is_some_and(|added| added.is_news) {
            self.news.push_back(id.clone());
        }
        self.logs.added(generation);
        if let Some(known) = self.producers.get_mut(producer) {
            (known.last, known.seen) = (sequence, now);
        }
        self.producers.added(producer, length);
        if added.is_some_and(|added| added.is_first) {
            self.producers.add_first(producer, (epoch, sequence));
        }
        self.producers.touch(producer);
        Ok(PushOutcome::Accepted)
    }

    fn check_room(&self, id: &JobId) -> Result<(), Refusal> {
        if self.log_bytes() >= self.limits.max_bytes {
            return Err(Refusal::Full("its logs have reached their limit"));
        }
        match self.jobs.get(id) {
            None if self.jobs.len() >= self.limits.max_jobs => {
                Err(Refusal::Full("too many jobs have records that are not sealed"))
            }
            Some(job) if job.is_full(&self.limits) => {
                Err(Refusal::Full("the job has too many records that are not sealed"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a new record of a producer whose account has its share of the room. An intake that follows another one has no shares:
    /// the other one has asked.
    ///
    /// # Errors
    /// [`Refusal::Share`].
    pub fn check_share(&self, pushed: &Pushed<'_>) -> Result<(), Refusal> {
        let known = self.producers.find(pushed.producer).and_then(|slot| self.producers.get(slot));
        let number = (pushed.epoch, pushed.sequence);
        if known.is_some_and(|known| number <= (known.epoch, known.last)) {
            return Ok(());
        }
        let accounts = self.producers.accounts();
        let held = accounts.held(pushed.producer);
        let is_much = |held: u64, most: u64, taken: u64| {
            held > most.saturating_sub(taken).saturating_mul(SHARE_OF_FREE)
        };
        if is_much(held.bytes, self.limits.max_bytes, self.log_bytes()) {
            return Err(Refusal::Share("records"));
        }
        if is_much(held.jobs, self.limits.max_jobs as u64, self.jobs.len() as u64)
            && pushed.record.id().is_ok_and(|id| !self.jobs.contains_key(&id))
        {
            return Err(Refusal::Share("jobs"));
        }
        let has_none = known.is_none_or(|known| known.unsealed.is_empty());
        if has_none && is_much(held.producers, MAX_PRODUCERS as u64, accounts.producers()) {
            return Err(Refusal::Share("producers"));
        }
        Ok(())
    }

    /// Adds a new producer.
    fn admit(&mut self, name: &str, epoch: i64, now: Timestamp) -> Result<Slot, Refusal> {
        let has_length = (1..=MAX_PRODUCER_BYTES).contains(&name.len());
        if !has_length || name.chars().any(char::is_control) {
            return Err(Refusal::Producer);
        }
        if self.producers.len() >= MAX_PRODUCERS {
            self.evict_silent();
        }
        if self.producers.len() >= MAX_PRODUCERS {
            return Err(Refusal::Full("too many producers are known"));
        }
        Ok(self.producers.add(name, epoch, i64::MIN, now))
    }

    /// Returns the index in the current log of a producer in an epoch.
    fn index_of(&mut self, slot: Slot, epoch: i64) -> Result<u32, Refusal> {
        let known = self.producers.get(slot);
        if known.is_some_and(|producer| producer.epoch < epoch) {
            self.producers.begin_epoch(slot, epoch);
        }
        let full = Refusal::Uncommitted;
        let Some(producer) = self.producers.get_mut(slot) else { return Err(full) };
        if let Some(index) = producer.index {
            return Ok(index);
        }
        let description = description(&producer.name, producer.last);
        let index = self.log.describe(producer.epoch, &description).ok_or(full)?;
        producer.index = Some(index);
        Ok(index)
    }

    /// Makes the pushed records durable, all at once. After an error they stay in memory, and the next commit tries again.
    ///
    /// A frame is written only after the one before it was synced. So power that fails can cost the last frame, and never
    /// one before a frame that stays: otherwise a later acknowledgement would cover records that are lost.
    ///
    /// # Errors
    /// The log cannot be written or synced. If [`is_lost`](Self::is_lost) holds then, the intake must be opened anew.
    pub fn commit(&mut self) -> Result<(), Error> {
        if self.is_unsynced {
            self.log.sync()?;
        }
        self.is_unsynced = true;
        self.log.commit(Level::Disk)?;
        self.is_unsynced = false;
        self.synced = self.log.length();
        self.producers.committed();
        self.has_producers = true;
        Ok(())
    }

    /// Returns true if the kernel lost records that were never acknowledged as durable. Producers send them again.
    pub fn is_lost(&self) -> bool {
        self.log.is_lost()
    }

    /// Returns the highest sequence of a producer's epoch that is durable, with all before it; `None` if the epoch has
    /// none.
    pub fn durable(&self, producer: &str, epoch: i64) -> Option<i64> {
        self.last_of(producer, epoch, |producer| producer.durable)
    }

    /// Returns the highest sequence of a producer's epoch that was accepted; `None` if the epoch has none.
    pub fn accepted(&self, producer: &str, epoch: i64) -> Option<i64> {
        self.last_of(producer, epoch, |producer| producer.last)
    }

    fn last_of(&self, name: &str, epoch: i64, last: impl Fn(&Producer) -> i64) -> Option<i64> {
        let known = self.producers.find(name).and_then(|slot| self.producers.get(slot))?;
        Some(last(known)).filter(|last| known.epoch == epoch && *last > i64::MIN)
    }

    /// Returns the progress of a producer, which changes with each commit and each sealed part.
    pub fn progress(&self, producer: &str) -> Option<Arc<Progress>> {
        let known = self.producers.find(producer).and_then(|slot| self.producers.get(slot))?;
        Some(known.progress.clone())
    }

    /// Begins a new log if the current one is full, and removes logs without unsealed records.
    ///
    /// # Errors
    /// A log cannot be written or removed; the current one stays in use.
    pub fn rotate(&mut self, now: Timestamp) -> Result<(), Error> {
        if self.log.length() >= MAX_LOG_BYTES || self.log.is_full() {
            self.rotate_now(now)?;
        }
        self.remove_sealed()
    }

    /// Begins a new log.
    ///
    /// # Errors
    /// The same as for [`rotate`](Self::rotate).
    pub fn rotate_now(&mut self, now: Timestamp) -> Result<(), Error> {
        if self.log.is_empty() {
            return Ok(());
        }
        self.commit()?;
        self.forget_silent(now);
        let log = begin(&self.disk, &mut self.logs, &self.folder, self.generation + 1)?;
        if let Some(closed) = self.logs.uses.get_mut(&self.generation) {
            closed.bytes = self.log.length();
        }
        (self.log, self.has_producers, self.synced) = (log, false, 0);
        self.generation += 1;
        self.producers.iter_mut().for_each(|producer| producer.index = None);
        self.describe_all();
        self.commit()
    }

    /// Describes all producers in the current log. There is room for them before its first commit; if there were not, the
    /// first record of a producer would describe it.
    fn describe_all(&mut self) {
        for producer in self.producers.iter_mut().filter(|producer| producer.index.is_none()) {
            let description = description(&producer.name, producer.last);
            producer.index = self.log.describe(producer.epoch, &description);
        }
    }

    /// Removes the logs without unsealed records.
    pub(super) fn remove_sealed(&mut self) -> Result<(), Error> {
        if self.has_producers { self.logs.remove_sealed(self.generation) } else { Ok(()) }
    }

    /// Forgets the half of the producers without unsealed records that have been silent for the longest time.
    fn evict_silent(&mut self) {
        let mut seen: Vec<Timestamp> =
            self.producers.iter_mut().map(|producer| producer.seen).collect();
        seen.sort_unstable();
        let Some(until) = seen.get(seen.len() / 2).copied() else { return };
        self.producers
            .forget(|producer| producer.seen <= until && producer.durable == producer.last);
    }

    /// Forgets producers that have been silent for long and have no unsealed records.
    fn forget_silent(&mut self, now: Timestamp) {
        let after = self.limits.forget_after;
        self.producers.forget(|producer| now.since(producer.seen) >= after);
    }

    /// Notes the new places of parts of a job.
    pub fn moved(&mut self, id: &JobId, parts: &[&PartRef]) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.entry.move_parts(parts);
            job.sealed.move_parts(parts);
        }
    }

    /// Notes the parts of a job that are left; the others were removed.
    pub fn keep_parts(&mut self, id: &JobId, parts: &[PartRef]) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.entry.parts = parts.to_vec();
            job.sealed.parts = parts.to_vec();
        }
    }

    /// Returns the bytes of all logs.
    pub fn log_bytes(&self) -> u64 {
        self.logs.bytes() + self.log.length()
    }

    /// Returns the jobs with unsealed records, in the order of their ids.
    pub fn jobs(&self) -> impl ExactSizeIterator<Item = (&JobId, &OpenJob)> {
        self.jobs.iter()
    }

    /// Returns a job with unsealed records.
    pub fn job(&self, id: &JobId) -> Option<&OpenJob> {
        self.jobs.get(id)
    }

    /// Returns the entries of at most `most` jobs that the catalogue is to be told about, and notes that it was told. If
    /// it could not be, [`untold`](Self::untold) takes that back.
    pub fn news(&mut self, most: usize, now: Timestamp) -> Vec<JobEntry> {
        let mut entries = Vec::new();
        while entries.len() < most
            && let Some(id) = self.news.pop_front()
        {
            // The news of a job that is sealed meanwhile were told with its part.
            if let Some(job) = self.jobs.get_mut(&id)
                && std::mem::take(&mut job.has_news)
            {
                job.told = Some(now);
                entries.push(job.entry.clone());
            }
        }
        entries
    }

    /// Notes that the catalogue was not told about jobs.
    pub fn untold(&mut self, entries: &[JobEntry]) {
        for entry in entries {
            if let Some(job) = self.jobs.get_mut(&entry.id)
                && !std::mem::replace(&mut job.has_news, true)
            {
                self.news.push_back(entry.id.clone());
            }
        }
    }

    /// Returns true if half of the room for logs or for jobs is taken.
    pub fn is_crowded(&self) -> bool {
        self.logs.bytes() >= self.limits.max_bytes / 2
            || self.jobs.len() >= self.limits.max_jobs / 2
    }

    /// Returns the bytes of the unsealed records of jobs.
    pub fn bytes_of(&self, jobs: &[JobId]) -> u64 {
        jobs.iter().filter_map(|id| self.jobs.get(id)).map(|job| job.bytes).sum()
    }

    /// Returns at most `most` jobs of which a part is due, with at most about `bytes` of records.
    pub fn due(&self, now: Timestamp, most: usize, bytes: u64) -> Vec<JobId> {
        // A full intake refuses records until parts are sealed, so it does not wait for that.
        let is_full = self.is_crowded();
        let due = self.jobs.iter().filter(|(_, job)| job.is_due(&self.limits, is_full, now));
        let mut all = 0;
        let fits = due.take_while(|(_, job)| {
            let fits = all < bytes;
            all += job.bytes;
            fits
        });
        fits.map(|(id, _)| id.clone()).take(most).collect()
    }

    /// Returns the unsealed records of a job that a commit has written.
    ///
    /// # Errors
    /// A log cannot be opened.
    pub fn unsealed(&mut self, id: &JobId) -> Result<Unsealed, Error> {
        let (current, end) = (self.generation, self.log.length());
        let Some(job) = self.jobs.get(id) else { return Ok(Unsealed::default()) };
        // Records wait for a commit in the order in which they were pushed.
        let is_written = |place: &&Place| place.generation < current || place.at < end;
        let places: Vec<Place> = job.places.iter().take_while(is_written).copied().collect();
        let mut logs = BTreeMap::new();
        for generation in places.iter().map(|place| place.generation) {
            if let Entry::Vacant(vacant) = logs.entry(generation) {
                let file = self.logs.file(generation, current)?;
                vacant.insert((self.logs.path(generation), file));
            }
        }
        Ok(Unsealed { places, logs })
    }

    /// Returns a part of the written records of a job; `None` if there are none. No other part of the job is due until
    /// [`sealed`](Self::sealed) is called: a part that could not be sealed must be tried again as it is. A part that
    /// could not be read is given up with [`release`](Self::release).
    ///
    /// # Errors
    /// A log cannot be opened.
    pub fn part(&mut self, id: &JobId) -> Result<Option<UnreadPart>, Error> {
        let unsealed = self.unsealed(id)?;
        let Some(job) = self.jobs.get_mut(id).filter(|_| !unsealed.places.is_empty()) else {
            return Ok(None);
        };
        let mut marks: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for place in &unsealed.places {
            if let Some(producer) = self.producers.get(place.producer) {
                marks.insert(&producer.name, (place.epoch, place.sequence));
            }
        }
        let mark = |(producer, (epoch, sequence)): (&str, (i64, i64))| Mark {
            producer: producer.to_owned(),
            epoch,
            sequence,
        };
        job.is_sealing = true;
        let marks = marks.into_iter().map(mark).collect();
        Ok(Some(UnreadPart { id: id.clone(), number: job.next_part, marks, unsealed }))
    }

    /// Gives up a part that could not be read. The job is due again.
    pub fn release(&mut self, id: &JobId) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.is_sealing = false;
        }
    }

    /// Returns the entry of a job's sealed records, if `part` is the next one to be sealed.
    pub fn entry_before(&self, part: &JobPart) -> Option<JobEntry> {
        let job = self.jobs.get(&part.id)?;
        (job.next_part == part.number).then(|| job.sealed.clone())
    }

    /// Notes that a part is sealed, with the entry of all sealed records. Its own records are forgotten.
    ///
    /// # Errors
    /// The other records of the job cannot be committed or read, and nothing changes; or a log cannot be removed.
    pub fn sealed(&mut self, part: &JobPart, entry: JobEntry) -> Result<(), Error> {
        if self.jobs.get(&part.id).is_some_and(|job| job.places.len() > part.records.len()) {
            self.commit()?;
        }
        let current = self.generation;
        let Some(job) = self.jobs.get_mut(&part.id) else { return Ok(()) };
        let rest = job.places.iter().skip(part.records.len());
        let rest = rest.map(|place| self.logs.read(place, current));
        let rest = rest.collect::<Result<Vec<Vec<u8>>, Error>>()?;
        let rest: Vec<JobRecord<'_>> =
            rest.iter().filter_map(|bytes| JobRecord::read(bytes)).collect();
        let before = std::mem::take(&mut job.firsts);
        for place in job.seal(part, entry, &rest) {
            self.logs.removed(place.generation);
            self.producers.removed(place.producer, place.length);
        }
        self.producers.change_firsts(&before, &job.firsts);
        if job.places.is_empty() {
            self.jobs.remove(&part.id);
        } else if !std::mem::replace(&mut job.has_news, true) {
            // The catalogue has the entry of the sealed records now.
            self.news.push_back(part.id.clone());
        }
        self.remove_sealed()
    }
}

/// Makes the log of a generation.
fn begin(
    disk: &Arc<dyn Disk>,
    logs: &mut Logs,
    folder: &Path,
    generation: u64,
) -> Result<LogWriter, Error> {
    // An earlier attempt may have failed after it had made the file.
    logs.remove(generation)?;
    let path = logs.path(generation);
    let log = LogWriter::create(disk.clone(), path, generation, CAPACITY)?;
    disk.sync_folder(folder).map_err(io_at(folder, "the folder cannot be synced"))?;
    logs.uses.insert(generation, LogUse::default());
    Ok(log)
}
