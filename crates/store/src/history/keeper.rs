//! Writes history: appends samples to the log, seals logs into parts, and removes the oldest parts.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use skopos_model::{Sample, Timestamp};

use super::block::LogContent;
use super::error::{Error, io_at};
use super::folder::{Folder, Listing, log_name};
use super::log::{self, Entry, Log, MAX_SERIES};
use super::seal::{Sealer, sync_folder};
use super::series::Series;

/// Length at which a log is sealed. Sealing needs about three times as much memory, and a query has to
/// read the whole log that is not sealed yet.
const MAX_LOG_BYTES: u64 = 8 << 20;

/// Limits of a folder of history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of all files together. The log may exceed it until the next seal.
    pub max_bytes: u64,
    /// The greatest age of a part's last sample. Older parts are removed.
    pub max_age: Duration,
    /// Age at which a log is sealed, if it is not full before.
    pub seal_every: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
        Self { max_bytes: 1 << 30, max_age: 30 * day, seal_every: hour }
    }
}

/// Writes a folder of history. Only one process at a time can have a keeper of a folder.
#[derive(Debug)]
pub struct Keeper {
    folder: PathBuf,
    limits: Limits,
    /// The lock file, which is locked while it is open.
    _lock: File,
    log: Log,
    generation: u64,
    /// Time at which the log was begun.
    began: Timestamp,
    next_index: u32,
    attached: Vec<Option<AttachedSeries>>,
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
pub struct SeriesId(usize);

/// The effect of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The next flush writes the sample.
    Accepted,
    /// The sample is stored already.
    Duplicate,
    /// The log has no room until a flush succeeds, or the series is not attached.
    Refused,
}

impl Keeper {
    /// Opens a folder, and creates it if it does not exist. Repairs what a killed process left: cuts a
    /// torn log, and leaves finished logs to the next chores.
    ///
    /// # Errors
    /// [`Error::Busy`]; a file cannot be read or written.
    pub fn open(folder: &Path, limits: Limits, now: Timestamp) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(io_at(folder, "the folder cannot be made"))?;
        let path = folder.join("lock");
        let lock = File::create(&path).map_err(io_at(&path, "it cannot be opened"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(Error::Busy(folder.to_path_buf())),
            Err(fs::TryLockError::Error(e)) => return Err(io_at(&path, "it cannot be locked")(e)),
        }
        let listing = Listing::of(folder)?;
        for path in &listing.temporary {
            fs::remove_file(path).map_err(io_at(path, "it cannot be removed"))?;
        }
        for generation in listing.parts.keys() {
            // The process was killed after it had named the part and before it removed the log.
            let _ = fs::remove_file(folder.join(log_name(*generation)));
        }
        let last_part = listing.parts.last_key_value().map(|(generation, _)| *generation);
        let last_log = listing.logs.last().copied();
        let generation = last_log.max(last_part.map(|g| g + 1)).unwrap_or(1);
        let path = folder.join(log_name(generation));
        let (mut began, mut next_index) = (now, 0);
        let (log, torn_bytes) = match last_log == Some(generation) {
            true => Log::open(path, &mut |entry| match entry {
                Entry::Series(index, _) => next_index = next_index.max(index.saturating_add(1)),
                Entry::Sample(_, sample) => began = began.min(sample.time),
            })?,
            false => (Log::create(path)?, 0),
        };
        sync_folder(folder)?;
        Ok(Self {
            folder: folder.to_path_buf(),
            limits,
            _lock: lock,
            log,
            generation,
            began,
            next_index,
            attached: Vec::new(),
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
            self.flush()?;
            let wanted: HashMap<&Series, ()> = all.iter().map(|series| (series, ())).collect();
            let all_times = Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);
            for part in Folder::new(&self.folder).parts(&all_times)? {
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

    /// Appends a sample. It is in memory until the next [`flush`](Self::flush).
    pub fn push(&mut self, id: SeriesId, sample: &Sample) -> PushOutcome {
        let Some(Some(attached)) = self.attached.get_mut(id.0) else { return PushOutcome::Refused };
        if attached.last.is_some_and(|last| sample.time <= last) {
            return PushOutcome::Duplicate;
        }
        let index = match attached.index {
            Some(index) => index,
            None if self.next_index as usize >= MAX_SERIES => return PushOutcome::Refused,
            None => {
                if !self.log.describe(self.next_index, &attached.series) {
                    return PushOutcome::Refused;
                }
                self.next_index += 1;
                *attached.index.insert(self.next_index - 1)
            }
        };
        if !self.log.push(index, sample) {
            return PushOutcome::Refused;
        }
        attached.last = Some(sample.time);
        PushOutcome::Accepted
    }

    /// Writes the pushed samples, which then survive the end of this process. After an error they stay
    /// in memory, and the next flush tries again.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.log.flush()
    }

    /// Syncs the written samples to disk, so that they survive a loss of power.
    ///
    /// # Errors
    /// The log cannot be synced.
    pub fn sync(&self) -> Result<(), Error> {
        self.log.sync()
    }

    /// Begins a new log if the current one is full or old.
    ///
    /// # Errors
    /// A log cannot be written; the current one stays in use.
    pub fn rotate(&mut self, now: Timestamp) -> Result<(), Error> {
        let is_due = self.log.length() >= MAX_LOG_BYTES
            || self.next_index as usize >= MAX_SERIES
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
        self.flush()?;
        self.sync()?;
        let log = Log::create(self.folder.join(log_name(self.generation + 1)))?;
        sync_folder(&self.folder)?;
        self.log = log;
        self.generation += 1;
        self.began = now;
        self.next_index = 0;
        self.attached.iter_mut().flatten().for_each(|attached| attached.index = None);
        Ok(())
    }

    /// Returns the work beside pushing samples. It takes longer, and may run on another thread.
    pub fn chores(&self) -> Chores {
        Chores { folder: self.folder.clone(), limits: self.limits, open: self.generation }
    }
}

/// Seals finished logs, and removes parts that exceed a limit.
#[derive(Clone, Debug)]
pub struct Chores {
    folder: PathBuf,
    limits: Limits,
    /// Generation of the log that is in use.
    open: u64,
}

/// The size of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of parts.
    pub parts: u64,
    /// Bytes of all parts and logs.
    pub bytes: u64,
}

impl Chores {
    /// Does the chores, and returns the size of the folder after them.
    ///
    /// # Errors
    /// A file cannot be read or written. The next run continues from there.
    pub fn run(&self, now: Timestamp) -> Result<Size, Error> {
        for generation in Listing::of(&self.folder)?.logs {
            if generation != self.open {
                self.seal(generation)?;
            }
        }
        self.retain(now)
    }

    fn seal(&self, generation: u64) -> Result<(), Error> {
        let path = self.folder.join(log_name(generation));
        let bytes = fs::read(&path).map_err(io_at(&path, "the log cannot be read"))?;
        let mut content = LogContent::default();
        log::read(&path, &bytes, &mut |entry| content.take(entry))?;
        drop(bytes);
        let mut sealer = Sealer::new(&self.folder, generation)?;
        for (series, samples) in content.sorted() {
            sealer.push(series, samples)?;
        }
        sealer.finish()?;
        // Not before: the part is durable only now.
        fs::remove_file(&path).map_err(io_at(&path, "the log cannot be removed"))
    }

    /// Removes the parts that are too old, and the oldest ones of those that take too much room.
    fn retain(&self, now: Timestamp) -> Result<Size, Error> {
        let listing = Listing::of(&self.folder)?;
        let length = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
        let logs = listing.logs.iter().map(|g| length(&self.folder.join(log_name(*g))));
        let mut size = Size { parts: 0, bytes: logs.sum() };
        let mut parts: Vec<_> = listing.parts.into_values().collect();
        parts.sort_by_key(|part| (part.to, part.generation));
        let oldest = now.saturating_sub(self.limits.max_age).as_nanos();
        // From the youngest part on: once a part is removed, so is every older one.
        let mut is_full = false;
        for part in parts.iter().rev() {
            let path = self.folder.join(part.file_name());
            let bytes = length(&path);
            is_full |= part.to < oldest || size.bytes + bytes > self.limits.max_bytes;
            if is_full {
                fs::remove_file(&path).map_err(io_at(&path, "it cannot be removed"))?;
            } else {
                size.parts += 1;
                size.bytes += bytes;
            }
        }
        Ok(size)
    }
}
