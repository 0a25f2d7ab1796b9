//! Writes history: appends samples to a log, and begins another one when it is full or old.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use skopos_model::{MAX_STRUCTURED_BYTES, Sample, Timestamp};

use super::chores::{Chores, Progress};
use super::codec;
use super::folder::{Folder, read_log};
use super::limits::Limits;
use super::listing::{Listing, log_name};
use super::series::Series;
use crate::log::{Capacity, Disk, Error, Level, Lock, LogWriter, OsDisk, io_at};

/// Length at which a log is sealed. Sealing needs about three times as much memory, and a query has to
/// read the whole log that is not sealed yet.
const MAX_LOG_BYTES: u64 = 8 << 20;

/// The room of a log. Some seconds of all that a node can publish may wait: that bounds the memory that a full disk can
/// cost. The longest content is a structured value with the fields before it.
const CAPACITY: Capacity = Capacity::new(1 << 20, MAX_STRUCTURED_BYTES + 512);

/// Writes a folder of history. Only one process at a time can have a keeper of a folder.
#[derive(Debug)]
pub struct Keeper {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    limits: Limits,
    /// Held by the chores too, which may outlive the keeper.
    lock: Arc<Lock>,
    log: LogWriter,
    generation: u64,
    /// Time at which the log was begun.
    began: Timestamp,
    attached: Vec<Option<AttachedSeries>>,
    /// Number of accepted samples, and of those that reached each level.
    accepted: u64,
    acknowledged: [u64; 2],
    /// True after the kernel lost samples whose sync failed.
    has_lost: bool,
    /// The content of the sample that is pushed.
    content: Vec<u8>,
    progress: Arc<Progress>,
    /// Length of the torn tail that `open` cut off.
    torn_bytes: u64,
}

/// A series whose samples are written.
#[derive(Debug)]
struct AttachedSeries {
    series: Series,
    /// Its index in the log; `None` before its first sample there.
    index: Option<u32>,
    /// Time of its last stored sample.
    last: Option<Timestamp>,
}

/// Identifies an attached series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeriesId(pub(super) usize);

/// The effect of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The next commit writes the sample.
    Accepted,
    /// The sample is stored already.
    Duplicate,
    /// The log has no room until a commit succeeds, the sample is too long for it, or the series is not attached.
    Refused,
}

impl Keeper {
    /// Opens a folder, and creates it if it does not exist. Repairs what a killed process left: cuts the torn tail of
    /// a log, and leaves other logs to the next chores.
    ///
    /// # Errors
    /// [`Error::Busy`]; a file cannot be read or written; a later version of Skopos wrote the log.
    pub fn open(folder: &Path, limits: Limits, now: Timestamp) -> Result<Self, Error> {
        Self::on(Arc::new(OsDisk), folder, limits, now)
    }

    pub(super) fn on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        limits: Limits,
        now: Timestamp,
    ) -> Result<Self, Error> {
        disk.make_folder(folder).map_err(io_at(folder, "the folder cannot be made"))?;
        let path = folder.join("lock");
        let lock = disk.lock(&path).map_err(io_at(&path, "it cannot be locked"))?;
        let lock = Arc::new(lock.ok_or_else(|| Error::Busy(folder.to_path_buf()))?);
        let listing = Listing::of(&*disk, folder)?;
        for name in &listing.temporary {
            let path = folder.join(name);
            disk.remove(&path).map_err(io_at(&path, "it cannot be removed"))?;
        }
        let last = listing.last();
        // A log that has a part is closed: the process ended before its chores removed the log.
        let is_open =
            |last: &u64| listing.logs.contains_key(last) && listing.part_of(*last).is_none();
        let resumed = match last.filter(is_open) {
            Some(generation) => resume(&disk, folder, generation, now)?,
            None => None,
        };
        let generation = match (&resumed, last) {
            (Some(_), Some(last)) => last,
            (_, last) => last.map_or(1, |last| last + 1),
        };
        let Resumed { log, began, torn_bytes } = match resumed {
            Some(resumed) => resumed,
            None => {
                let log = begin(&disk, folder, generation)?;
                Resumed { log, began: now, torn_bytes: 0 }
            }
        };
        Ok(Self {
            disk,
            folder: folder.to_path_buf(),
            limits,
            lock,
            log,
            generation,
            began,
            attached: Vec::new(),
            accepted: 0,
            acknowledged: [0; 2],
            has_lost: false,
            content: Vec::new(),
            progress: Arc::default(),
            torn_bytes,
        })
    }

    /// Returns the number of bytes of a torn log that [`open`](Self::open) cut off.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Attaches series, so that their samples can be pushed. If they may have been attached before
    /// (`known`), finds their last stored samples, so that no sample is stored twice.
    ///
    /// # Errors
    /// A stored file cannot be read.
    pub fn attach(&mut self, all: Vec<Series>, known: bool) -> Result<Vec<SeriesId>, Error> {
        let mut lasts: HashMap<&Series, Timestamp> = HashMap::new();
        if known {
            self.commit(Level::Memory)?;
            let wanted: HashMap<&Series, ()> = all.iter().map(|series| (series, ())).collect();
            let all_times = Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);
            let folder = Folder::on(self.disk.clone(), self.folder.clone());
            for part in folder.find(&all_times)?.parts {
                for stretch in part.stretches() {
                    if let Some((series, ())) = wanted.get_key_value(&stretch.series) {
                        let last = lasts.entry(*series).or_insert(stretch.last);
                        *last = stretch.last.max(*last);
                    }
                }
            }
        }
        let lasts: Vec<Option<Timestamp>> = all.iter().map(|s| lasts.get(s).copied()).collect();
        let mut ids = Vec::with_capacity(all.len());
        let mut free = 0;
        for (series, last) in all.into_iter().zip(lasts) {
            let attached = Some(AttachedSeries { series, index: None, last });
            while self.attached.get(free).is_some_and(Option::is_some) {
                free += 1;
            }
            match self.attached.get_mut(free) {
                Some(slot) => *slot = attached,
                None => self.attached.push(attached),
            }
            ids.push(SeriesId(free));
        }
        Ok(ids)
    }

    /// Detaches a series. Its stored samples stay; its id may become that of another series.
    pub fn detach(&mut self, id: SeriesId) {
        if let Some(attached) = self.attached.get_mut(id.0) {
            *attached = None;
        }
    }

    /// Appends a sample. It is in memory until the next [`commit`](Self::commit).
    pub fn push(&mut self, id: SeriesId, sample: &Sample) -> PushOutcome {
        let Some(Some(attached)) = self.attached.get_mut(id.0) else { return PushOutcome::Refused };
        if attached.last.is_some_and(|last| sample.time <= last) {
            return PushOutcome::Duplicate;
        }
        let index = match attached.index {
            Some(index) => index,
            None => {
                let AttachedSeries { series, index, .. } = attached;
                let described =
                    self.log.describe(series.since.as_nanos(), &codec::description(series));
                let Some(described) = described else { return PushOutcome::Refused };
                *index.insert(described)
            }
        };
        codec::write(sample, &mut self.content);
        if self.log.append(index, sample.time.as_nanos(), &self.content).is_none() {
            return PushOutcome::Refused;
        }
        attached.last = Some(sample.time);
        self.accepted += 1;
        PushOutcome::Accepted
    }

    /// Commits the pushed samples, which then survive what the level says. After an error of writing they stay in
    /// memory, and the next commit tries again.
    ///
    /// # Errors
    /// The log cannot be written or synced.
    pub fn commit(&mut self, level: Level) -> Result<(), Error> {
        self.log.commit(Level::Memory)?;
        self.acknowledged[Level::Memory as usize] = self.accepted;
        self.log.commit(level)?;
        if level == Level::Disk && !self.has_lost {
            self.acknowledged[Level::Disk as usize] = self.accepted;
        }
        Ok(())
    }

    /// Returns the number of samples that have reached a level since the folder was opened: the first ones of all
    /// accepted ones. Once the kernel has lost some, those after them do not count any more.
    pub fn acknowledged(&self, level: Level) -> u64 {
        self.acknowledged[level as usize]
    }

    /// Returns the number of pushed samples that no commit has written.
    pub fn pending(&self) -> u64 {
        self.accepted - self.acknowledged(Level::Memory)
    }

    /// Begins a new log if the current one is full or old, or can never be synced.
    ///
    /// # Errors
    /// A log cannot be written; the current one stays in use.
    pub fn rotate(&mut self, now: Timestamp) -> Result<(), Error> {
        let is_due = self.log.length() >= MAX_LOG_BYTES
            || self.log.is_full()
            || self.log.is_lost()
            || now.since(self.began) >= self.limits.seal_every;
        if is_due { self.rotate_now(now) } else { Ok(()) }
    }

    /// Begins a new log.
    ///
    /// # Errors
    /// The same as for [`rotate`](Self::rotate).
    pub fn rotate_now(&mut self, now: Timestamp) -> Result<(), Error> {
        if self.log.is_empty() {
            self.began = now;
            return Ok(());
        }
        let level = if self.log.is_lost() { Level::Memory } else { Level::Disk };
        self.commit(level)?;
        self.has_lost |= self.log.is_lost();
        self.log = begin(&self.disk, &self.folder, self.generation + 1)?;
        self.generation += 1;
        self.began = now;
        self.attached.iter_mut().flatten().for_each(|attached| attached.index = None);
        Ok(())
    }

    /// Returns the work beside pushing samples. It takes longer, and may run on another thread.
    pub fn chores(&self) -> Chores {
        let (disk, lock) = (self.disk.clone(), self.lock.clone());
        let state = (self.generation, self.progress.clone());
        Chores::new(disk, lock, self.folder.clone(), self.limits, state)
    }
}

/// A log that takes samples.
struct Resumed {
    log: LogWriter,
    began: Timestamp,
    torn_bytes: u64,
}

/// Continues the newest log. `None` if it is damaged: then the chores seal what is left of it.
fn resume(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    generation: u64,
    now: Timestamp,
) -> Result<Option<Resumed>, Error> {
    let path = folder.join(log_name(generation));
    let content = match read_log(&**disk, &path, generation) {
        Err(e) if e.is_damage() => return Ok(None),
        content => content?,
    };
    if content.losses.frames > 0 || content.losses.orphans > 0 {
        return Ok(None);
    }
    let (producers, torn_bytes) = (content.producers(), content.losses.tail);
    let began = content.first().map_or(now, |first| first.min(now));
    let log =
        LogWriter::resume(disk.clone(), path, generation, (&content.scanned, producers), CAPACITY)?;
    disk.sync_folder(folder).map_err(io_at(folder, "the folder cannot be synced"))?;
    Ok(Some(Resumed { log, began, torn_bytes }))
}

/// Begins the log of a generation.
fn begin(disk: &Arc<dyn Disk>, folder: &Path, generation: u64) -> Result<LogWriter, Error> {
    let path = folder.join(log_name(generation));
    // An earlier attempt may have failed after it had made the file.
    match disk.remove(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(io_at(&path, "the log cannot be removed")(e));
        }
        _ => {}
    }
    let log = LogWriter::create(disk.clone(), path, generation, CAPACITY)?;
    disk.sync_folder(folder).map_err(io_at(folder, "the folder cannot be synced"))?;
    Ok(log)
}
