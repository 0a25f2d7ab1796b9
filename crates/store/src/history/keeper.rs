//! Keeps history: takes samples in, writes them to the log, seals logs into parts, removes the oldest.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use skopos_model::{Sample, Timestamp};

use super::block::Taken;
use super::error::{Error, io_at};
use super::folder::{Folder, Listing, log_name};
use super::log::{Entry, Log, MAX_SERIES};
use super::seal::{Sealer, sync_folder};
use super::series::Series;

/// A log that is this long is sealed. Sealing it needs about three times as much memory; and it is
/// what a query has to read that is not sealed.
const MAX_LOG_BYTES: u64 = 8 << 20;

/// How far history reaches back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All files together are not longer, but for what is written until the next seal.
    pub max_bytes: u64,
    /// Parts whose last sample is older go.
    pub max_age: Duration,
    /// A log is sealed when it is so old, if it is not full before.
    pub seal_every: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
        Self { max_bytes: 1 << 30, max_age: 30 * day, seal_every: hour }
    }
}

/// Writes a folder of history. One process at a time has it.
#[derive(Debug)]
pub struct Keeper {
    folder: PathBuf,
    limits: Limits,
    /// Locked for as long as it is open.
    _lock: File,
    log: Log,
    generation: u64,
    /// When the log was begun.
    began: Timestamp,
    next_index: u32,
    kept: Vec<Option<Kept>>,
    /// What was found torn when it was opened.
    torn_bytes: u64,
}

/// A series that is kept.
#[derive(Debug)]
struct Kept {
    series: Series,
    /// What the log calls it, once it does.
    index: Option<u32>,
    /// The time of its last sample here.
    last: Option<Timestamp>,
}

/// Which series a sample is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(usize);

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It will be written at the next flush.
    Taken,
    /// It is there already.
    Known,
    /// There is no room until something could be written.
    Refused,
}

impl Keeper {
    /// Opens a folder, and makes it if it is not there. What a killed process left is mended: a torn
    /// log is cut, and logs that were to be sealed will be.
    ///
    /// # Errors
    /// [`Error::Busy`]; something cannot be read or written.
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
            // Killed between giving the part its name and removing the log.
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
            kept: Vec::new(),
            torn_bytes,
        })
    }

    /// Bytes of a torn log that were cut off when it was opened.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Begins to keep series. Those that may have been kept before are `known`: what they have here is
    /// looked for, so that nothing is taken in twice.
    ///
    /// # Errors
    /// What is here cannot be read.
    pub fn attach(&mut self, all: Vec<Series>, known: bool) -> Result<Vec<Id>, Error> {
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
            let kept = Some(Kept { series, index: None, last });
            while self.kept.get(free).is_some_and(Option::is_some) {
                free += 1;
            }
            match self.kept.get_mut(free) {
                Some(place) => *place = kept,
                None => self.kept.push(kept),
            }
            ids.push(Id(free));
        }
        Ok(ids)
    }

    /// Keeps a series no longer; what is here of it stays. Its id may become another's.
    pub fn detach(&mut self, id: Id) {
        if let Some(kept) = self.kept.get_mut(id.0) {
            *kept = None;
        }
    }

    /// Takes a sample in. It is in memory until the next [`flush`](Self::flush).
    pub fn push(&mut self, id: Id, sample: &Sample) -> Pushed {
        let Some(Some(kept)) = self.kept.get_mut(id.0) else { return Pushed::Refused };
        if kept.last.is_some_and(|last| sample.time <= last) {
            return Pushed::Known;
        }
        let index = match kept.index {
            Some(index) => index,
            None if self.next_index as usize >= MAX_SERIES => return Pushed::Refused,
            None => {
                if !self.log.describe(self.next_index, &kept.series) {
                    return Pushed::Refused;
                }
                self.next_index += 1;
                *kept.index.insert(self.next_index - 1)
            }
        };
        if !self.log.push(index, sample) {
            return Pushed::Refused;
        }
        kept.last = Some(sample.time);
        Pushed::Taken
    }

    /// Writes what was taken in: from then on it outlives this process. What cannot be written is kept,
    /// and tried again at the next flush.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.log.flush()
    }

    /// Makes what was written outlive a loss of power.
    ///
    /// # Errors
    /// It cannot be synced.
    pub fn sync(&self) -> Result<(), Error> {
        self.log.sync()
    }

    /// Begins a new log if this one is full or old.
    ///
    /// # Errors
    /// It cannot be written; then it goes on being used.
    pub fn rotate(&mut self, now: Timestamp) -> Result<(), Error> {
        let is_due = self.log.length() >= MAX_LOG_BYTES
            || self.next_index as usize >= MAX_SERIES
            || now.since(self.began) >= self.limits.seal_every;
        if is_due { self.rotate_now(now) } else { Ok(()) }
    }

    /// Begins a new log.
    ///
    /// # Errors
    /// As [`rotate`](Self::rotate).
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
        self.kept.iter_mut().flatten().for_each(|kept| kept.index = None);
        Ok(())
    }

    /// What is to be done beside taking samples in; it takes its time, and may be done on another
    /// thread.
    pub fn chores(&self) -> Chores {
        Chores { folder: self.folder.clone(), limits: self.limits, open: self.generation }
    }
}

/// Sealing logs that are not written any more, and removing what is too much or too old.
#[derive(Clone, Debug)]
pub struct Chores {
    folder: PathBuf,
    limits: Limits,
    /// The generation of the log that is written.
    open: u64,
}

/// How much there is in a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Parts.
    pub parts: u64,
    /// Bytes of parts and logs.
    pub bytes: u64,
}

impl Chores {
    /// Does them.
    ///
    /// # Errors
    /// Something cannot be read or written; what was done until then is done, and the rest is done the
    /// next time.
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
        let mut taken = Taken::default();
        super::log::read(&path, &bytes, &mut |entry| taken.take(entry))?;
        drop(bytes);
        let mut sealer = Sealer::new(&self.folder, generation)?;
        for (series, samples) in taken.sorted() {
            sealer.push(series, samples)?;
        }
        sealer.finish()?;
        // Only now that the part is durable.
        fs::remove_file(&path).map_err(io_at(&path, "the log cannot be removed"))
    }

    /// Removes the oldest parts: those that are too old, and as many as are too much.
    fn retain(&self, now: Timestamp) -> Result<Size, Error> {
        let listing = Listing::of(&self.folder)?;
        let length = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
        let logs = listing.logs.iter().map(|g| length(&self.folder.join(log_name(*g))));
        let mut size = Size { parts: 0, bytes: logs.sum() };
        let mut parts: Vec<_> = listing.parts.into_values().collect();
        parts.sort_by_key(|part| (part.to, part.generation));
        let oldest = now.saturating_sub(self.limits.max_age).as_nanos();
        // From the youngest on: all that fits stays, and nothing that is older than what went.
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
