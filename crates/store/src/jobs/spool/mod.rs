//! The spool: records of a producer that could not reach its hub, on the producer's own disk.
//!
//! A file has one batch with its producer, epoch and sequences, so a hub that gets it twice stores it once. A file is
//! removed after it was acknowledged. Any number of processes use a folder at the same time.
//!
//! ```text
//! NUMBER-s.batch   has measurements            the letter tells which records a full spool drops next
//! NUMBER-d.batch   has reports or spans
//! NUMBER-k.batch   has only records that are kept
//! NUMBER.tmp       is being written
//! lock             locked by the process that adds a batch
//! sending          locked by the process that sends
//! quarantine       folder of damaged batches, and of those that a hub refused
//! ```
//!
//! # Invariants
//! - What [`Spool::add`] has returned survives a loss of power until it is acknowledged.
//! - Starts, ends, names of metrics, tags and losses are never dropped. Of dropped records a loss of their job has the number
//!   and the reason.
//!
//! Read in this order: `batch`, this file.

mod batch;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_model::Timestamp;

use self::batch::Droppable;
pub use self::batch::{MAX_BATCH_BYTES, SpooledBatch};
use crate::log::{self, Damage, Disk, Error, Listed, Lock, OsDisk, io_at};

/// The most bytes of a spool. The starts, ends and reports of five thousand small tasks fit.
const MAX_BYTES: u64 = 64 << 20;

/// Bytes beyond the bound, which only batches without droppable records take: some ten thousand starts and ends.
const RESERVE_BYTES: u64 = 16 << 20;

/// The most files of a spool. With blocks of 4 KiB, files that are not full waste 64 MiB at most.
const MAX_FILES: usize = 16_384;

/// Time for which a batch waits until other processes have added theirs. Adding one takes a few milliseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two attempts to lock the folder.
const LOCK_EVERY: Duration = Duration::from_millis(5);

/// The most bytes of a file to which batches are joined: the file is written anew each time. A full spool has a thousand of
/// them.
const JOINED_BYTES: u64 = 64 << 10;

const LOCK: &str = "lock";
const SENDING: &str = "sending";
const SUFFIX: &str = ".batch";
const TEMPORARY: &str = ".tmp";

const WHY: &str = "the hub was away and the spool was full";

/// A folder of batches that wait for a hub.
#[derive(Clone, Debug)]
pub struct Spool {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    max_bytes: u64,
}

/// The effect of adding a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Number of records that were dropped to make room. Their jobs have losses.
    pub dropped: u64,
    /// Damaged files that were found, and moved to the quarantine.
    pub damaged: Vec<Damage>,
}

/// The answer of a hub to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The hub has all records on its disk.
    Acknowledged {
        /// Number of those that it did not have before.
        new: u64,
    },
    /// The hub refuses records for good, and has the others on its disk.
    Refused(String),
    /// The hub does not take the batch now.
    Later(String),
}

/// The effect of sending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Number of records that were acknowledged.
    pub records: u64,
    /// Files that could not be sent: damaged, or refused by the hub. They are in the quarantine, except those of a later
    /// version of Skopos.
    pub aside: Vec<Damage>,
    /// Number of those that are damaged: it is not known which records they had.
    pub damaged: u64,
    /// The reason why batches wait, if any do.
    pub waiting: Option<String>,
}

/// The name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    number: u64,
    droppable: Option<Droppable>,
}

impl Name {
    fn of(name: &str) -> Option<Self> {
        let (number, letter) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        let droppable = match letter {
            "s" => Some(Droppable::Samples),
            "d" => Some(Droppable::Documents),
            "k" => None,
            _ => return None,
        };
        Some(Self { number: number.parse().ok()?, droppable })
    }

    fn text(self) -> String {
        let letter = match self.droppable {
            Some(Droppable::Samples) => 's',
            Some(Droppable::Documents) => 'd',
            None => 'k',
        };
        format!("{:020}-{letter}{SUFFIX}", self.number)
    }
}

/// A batch in the folder.
#[derive(Clone, Debug)]
struct File {
    name: Name,
    bytes: u64,
}

impl Spool {
    /// Returns the spool in a folder, which need not exist.
    pub fn new(folder: PathBuf) -> Self {
        Self { disk: Arc::new(OsDisk), folder, max_bytes: MAX_BYTES }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns true if the folder exists: a producer of this machine has spooled before.
    pub fn exists(&self) -> bool {
        self.folder.is_dir()
    }

    /// Returns the number of batches.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn len(&self) -> Result<usize, Error> {
        Ok(self.files()?.len())
    }

    /// Returns true if no batch waits.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.files()?.is_empty())
    }

    /// Adds a batch, which is on the disk when this returns. If the spool is full, the oldest measurements are dropped, then
    /// the oldest reports and spans.
    ///
    /// # Errors
    /// The batch is too large, there is no room for records that are never dropped, or the disk fails.
    pub fn add(&self, batch: &SpooledBatch, now: Timestamp) -> Result<Added, Error> {
        self.add_with(batch, now, false)
    }

    /// Adds a batch as [`add`](Self::add) does, in one file with the newest batch if that is of the same epoch and both are
    /// small: a producer that adds a batch every few seconds makes few files. It must know that the newest batch was never
    /// sent. Otherwise a loss could count records that the hub has.
    ///
    /// # Errors
    /// The same as for [`add`](Self::add).
    pub fn join(&self, batch: &SpooledBatch, now: Timestamp) -> Result<Added, Error> {
        self.add_with(batch, now, true)
    }

    fn add_with(
        &self,
        batch: &SpooledBatch,
        now: Timestamp,
        may_join: bool,
    ) -> Result<Added, Error> {
        if batch.bytes() > MAX_BATCH_BYTES as u64 {
            let why = format!("a batch has at most {MAX_BATCH_BYTES} bytes");
            return Err(Error::refused(&self.folder, &why));
        }
        self.make_folder()?;
        let _lock = self.lock()?;
        self.remove_temporaries()?;
        let mut files = self.files()?;
        let mut added = Added::default();
        if may_join && self.has_joined(&files, batch)? {
            return Ok(added);
        }
        let batch = self.make_room(batch, &mut files, &mut added)?;
        let highest = files.last().map_or(0, |file| file.name.number.saturating_add(1));
        let number = highest.max(u64::try_from(now.as_nanos()).unwrap_or(0));
        self.write(&batch, Name { number, droppable: batch.droppable() })?;
        Ok(added)
    }

    /// Writes the newest file anew with the records of a batch behind its own. Returns false if they cannot be in one file, and
    /// then changes nothing.
    fn has_joined(&self, files: &[File], batch: &SpooledBatch) -> Result<bool, Error> {
        let total: u64 = files.iter().map(|file| file.bytes).sum();
        let has_room = |file: &&File| {
            file.bytes + batch.bytes() <= JOINED_BYTES && total + batch.bytes() <= self.max_bytes
        };
        let Some(newest) = files.last().filter(has_room) else { return Ok(false) };
        // A process that sends the file would remove it with the new records.
        let Some(_sending) = self.lock_sending()? else { return Ok(false) };
        // A damaged file is found when it is sent.
        let Ok(mut joined) = self.read(newest.name) else { return Ok(false) };
        let is_one = (&joined.producer, joined.epoch) == (&batch.producer, batch.epoch);
        let last = joined.records.last().map_or(i64::MIN, |(sequence, _)| *sequence);
        let is_after = batch.records.first().is_some_and(|(sequence, _)| *sequence > last);
        joined.records.extend(batch.records.iter().cloned());
        if !is_one || !is_after || joined.droppable() != newest.name.droppable {
            return Ok(false);
        }
        self.write(&joined, newest.name)?;
        Ok(true)
    }

    /// Locks the folder for sending; `None` if another process sends.
    fn lock_sending(&self) -> Result<Option<Lock>, Error> {
        let path = self.folder.join(SENDING);
        self.disk.lock(&path).map_err(io_at(&path, "the lock cannot be taken"))
    }

    /// Passes the batches to `send`, in the order in which they were added, until it answers [`Sent::Later`]. Sends nothing
    /// if another process does.
    ///
    /// # Errors
    /// The folder or a file cannot be read, or the disk fails.
    pub fn deliver(&self, send: &mut dyn FnMut(&SpooledBatch) -> Sent) -> Result<Delivered, Error> {
        let mut delivered = Delivered::default();
        // Most machines have nothing to send, and no folder.
        if self.is_empty()? {
            return Ok(delivered);
        }
        let lock = self.lock_sending()?;
        if lock.is_none() {
            delivered.waiting = Some("another process sends them".to_owned());
            return Ok(delivered);
        }
        for file in self.files()? {
            let batch = match self.read(file.name) {
                // It was made smaller, and has another name. The next time it is sent.
                Err(e) if e.is_gone() => continue,
                Err(e) if e.is_damage() => {
                    let moved = self.put_aside(file.name, e.why())?;
                    delivered.damaged += u64::from(moved.is_some());
                    delivered.aside.extend(moved);
                    continue;
                }
                Err(e @ Error::Newer { .. }) => {
                    delivered.aside.push(Damage { file: file.name.text(), why: e.to_string() });
                    continue;
                }
                batch => batch?,
            };
            match send(&batch) {
                Sent::Acknowledged { .. } => {
                    delivered.records += batch.records.len() as u64;
                    self.remove(&file.name.text())?;
                }
                Sent::Refused(why) => {
                    let why = format!("the hub refused it: {why}");
                    delivered.aside.extend(self.put_aside(file.name, why)?);
                }
                Sent::Later(why) => {
                    delivered.waiting = Some(why);
                    break;
                }
            }
        }
        self.sync()?;
        Ok(delivered)
    }

    /// Drops records until a batch fits. Returns the batch, of which records may be dropped too.
    fn make_room(
        &self,
        batch: &SpooledBatch,
        files: &mut [File],
        added: &mut Added,
    ) -> Result<SpooledBatch, Error> {
        let mut batch = batch.clone();
        let mut total: u64 = files.iter().map(|file| file.bytes).sum();
        for kinds in Droppable::ALL {
            for file in files.iter_mut().filter(|file| file.name.droppable == Some(kinds)) {
                if total + batch.bytes() <= self.max_bytes {
                    break;
                }
                total -= file.bytes;
                self.shrink(file, kinds, added)?;
                total += file.bytes;
            }
            if total + batch.bytes() > self.max_bytes {
                let (smaller, dropped) = batch.without(kinds, WHY);
                if smaller.bytes() < batch.bytes() {
                    added.dropped += dropped;
                    batch = smaller;
                }
            }
        }
        if total + batch.bytes() > self.max_bytes + RESERVE_BYTES || files.len() >= MAX_FILES {
            let why = format!("it is full: {} batches with {total} bytes wait", files.len());
            return Err(Error::refused(&self.folder, &why));
        }
        Ok(batch)
    }

    /// Drops records of a file, which gets another name.
    fn shrink(&self, file: &mut File, kinds: Droppable, added: &mut Added) -> Result<(), Error> {
        let batch = match self.read(file.name) {
            // It was sent meanwhile.
            Err(e) if e.is_gone() => {
                (file.bytes, file.name.droppable) = (0, None);
                return Ok(());
            }
            Err(e) if e.is_damage() => {
                added.damaged.extend(self.put_aside(file.name, e.why())?);
                (file.bytes, file.name.droppable) = (0, None);
                return Ok(());
            }
            batch => batch?,
        };
        let (mut smaller, mut dropped) = batch.without(kinds, WHY);
        let mut droppable = smaller.droppable();
        if smaller.bytes() >= batch.bytes() {
            // The losses would need more room than the records. The name tells the next time that it is not worth it.
            droppable = Droppable::ALL.into_iter().find(|k| *k > kinds && batch.has(*k));
            (smaller, dropped) = (batch, 0);
        }
        let name = Name { droppable, ..file.name };
        self.write(&smaller, name)?;
        // Only now: without the new name on the disk, a loss of power could cost both.
        self.remove(&file.name.text())?;
        added.dropped += dropped;
        *file = File { name, bytes: smaller.bytes() };
        Ok(())
    }

    /// Writes a batch under a name.
    fn write(&self, batch: &SpooledBatch, name: Name) -> Result<(), Error> {
        let temporary = self.folder.join(format!("{:020}{TEMPORARY}", name.number));
        batch.write(self.disk.clone(), &temporary)?;
        let path = self.folder.join(name.text());
        let renamed = self.disk.rename(&temporary, &path);
        renamed.map_err(io_at(&path, "the batch cannot get its name"))?;
        self.sync()
    }

    fn read(&self, name: Name) -> Result<SpooledBatch, Error> {
        let path = self.folder.join(name.text());
        let bytes = self.disk.read(&path).map_err(io_at(&path, "the batch cannot be read"))?;
        SpooledBatch::read(&path, &bytes)
    }

    /// Removes a file, unless another process was faster.
    fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.folder.join(name);
        match self.disk.remove(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(io_at(&path, "the file cannot be removed")),
        }
    }

    /// Moves a file to the quarantine, unless another process was faster.
    fn put_aside(&self, name: Name, why: String) -> Result<Option<Damage>, Error> {
        let file = name.text();
        match log::quarantine(&*self.disk, &self.folder, &file) {
            Err(e) if e.is_gone() => Ok(None),
            moved => moved.map(|()| Some(Damage { file, why })),
        }
    }

    fn sync(&self) -> Result<(), Error> {
        let synced = self.disk.sync_folder(&self.folder);
        synced.map_err(io_at(&self.folder, "the folder cannot be synced"))
    }

    fn make_folder(&self) -> Result<(), Error> {
        let made = self.disk.make_folder(&self.folder);
        let above = self.folder.parent().unwrap_or(Path::new("/"));
        let made = made.and_then(|()| self.disk.sync_folder(above));
        made.map_err(io_at(&self.folder, "the folder cannot be made"))
    }

    /// Waits for the other processes that add a batch.
    fn lock(&self) -> Result<Lock, Error> {
        let path = self.folder.join(LOCK);
        let until = Instant::now() + LOCK_PATIENCE;
        loop {
            let lock = self.disk.lock(&path).map_err(io_at(&path, "the lock cannot be taken"))?;
            match lock {
                Some(lock) => return Ok(lock),
                None if Instant::now() >= until => return Err(Error::Busy(self.folder.clone())),
                None => std::thread::sleep(LOCK_EVERY),
            }
        }
    }

    /// Removes what processes left that ended while they wrote.
    fn remove_temporaries(&self) -> Result<(), Error> {
        for file in self.list()? {
            if file.name.ends_with(TEMPORARY) {
                self.remove(&file.name)?;
            }
        }
        Ok(())
    }

    /// Returns the batches in the order in which they were added.
    fn files(&self) -> Result<Vec<File>, Error> {
        let listed = self.list()?.into_iter();
        let named = listed.filter_map(|file| Some((Name::of(&file.name)?, file.bytes)));
        let mut files: Vec<File> = named.map(|(name, bytes)| File { name, bytes }).collect();
        // A crash may leave two files of one batch. The first one that is sent counts: the other one has no sequence that
        // the hub does not have.
        files.sort_by_key(|file| file.name.text());
        Ok(files)
    }

    fn list(&self) -> Result<Vec<Listed>, Error> {
        let listed = self.disk.list(&self.folder);
        listed.map_err(io_at(&self.folder, "the folder cannot be read"))
    }
}
