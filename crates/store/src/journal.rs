//! Journals: entries in the order in which they came, such as who read which jobs. A journal is only appended to, and bounded
//! by bytes and age.
//!
//! # Layout
//! Files `NAME-GENERATION-SECONDS.log`, each a log of the log core; the seconds are those of UNIX time at which it began. A
//! log has one producer, the name of the journal, and its sequences ascend from zero. The content of an entry belongs to the
//! caller. A process begins a log of its own with its first entry.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use skopos_model::Timestamp;

use crate::log::{
    Capacity, Disk, Error, Level, Lock, LogWriter, NotALog, OsDisk, Record, io_at, scan,
};

/// The longest entry: sixteen ids of 256 bytes, which JSON may write six times as long, and its other fields.
pub const MAX_ENTRY_BYTES: usize = 32 << 10;

/// The room of a log between two commits, which are a fraction of a second apart: thousands of entries.
const CAPACITY: Capacity = Capacity::new(4 << 20, MAX_ENTRY_BYTES);

/// Length in bytes at which another log begins. A log is read and removed as a whole.
pub const MAX_LOG_BYTES: u64 = 4 << 20;

/// Time after which another log begins, so that entries are removed by age.
const MAX_LOG_AGE: Duration = Duration::from_secs(86_400);

/// Limits of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalLimits {
    /// The most bytes of all logs. The oldest are removed.
    pub max_bytes: u64,
    /// The age after which entries are removed.
    pub max_age: Duration,
}

/// 64 MiB have some 200,000 entries of 300 bytes; a year is the time for which sites keep such logs.
impl Default for JournalLimits {
    fn default() -> Self {
        Self { max_bytes: 64 << 20, max_age: Duration::from_secs(366 * 86_400) }
    }
}

/// A journal in a folder. One process writes.
#[derive(Debug)]
pub struct Journal {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    name: &'static str,
    _lock: Lock,
    limits: JournalLimits,
    /// Logs by generation: their name and bytes.
    files: BTreeMap<u64, (String, u64)>,
    writing: Option<Writing>,
}

#[derive(Debug)]
struct Writing {
    log: LogWriter,
    generation: u64,
    began: Timestamp,
    index: u32,
    sequence: i64,
}

fn name_of(name: &str, generation: u64, began: Timestamp) -> String {
    format!("{name}-{generation:08}-{}.log", began.as_nanos().max(0) / 1_000_000_000)
}

/// Returns the generation and the seconds in the name of a log of the journal `name`.
fn parse(name: &str, file: &str) -> Option<(u64, u64)> {
    let rest = file.strip_prefix(name)?.strip_prefix('-')?;
    let (generation, seconds) = rest.strip_suffix(".log")?.split_once('-')?;
    Some((generation.parse().ok()?, seconds.parse().ok()?))
}

impl Journal {
    /// Opens the journal `name` in a folder, which is made unless it exists.
    ///
    /// # Errors
    /// Another process writes to the folder, or it cannot be read or written.
    pub fn open(folder: &Path, name: &'static str, limits: JournalLimits) -> Result<Self, Error> {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        disk.make_folder(folder).map_err(io_at(folder, "the folder cannot be made"))?;
        let path = folder.join("lock");
        let lock = disk.lock(&path).map_err(io_at(&path, "it cannot be locked"))?;
        let lock = lock.ok_or_else(|| Error::Busy(folder.to_path_buf()))?;
        let listed = disk.list(folder).map_err(io_at(folder, "the folder cannot be listed"))?;
        let files = listed.into_iter().filter_map(|file| {
            let (generation, _) = parse(name, &file.name)?;
            Some((generation, (file.name, file.bytes)))
        });
        let files = files.collect();
        let folder = folder.to_path_buf();
        Ok(Self { disk, folder, name, _lock: lock, limits, files, writing: None })
    }

    /// Appends an entry, which is durable after the next [`commit`](Self::commit). Returns false if there is no room for it.
    ///
    /// # Errors
    /// A log cannot be made.
    pub fn append(&mut self, entry: &[u8], now: Timestamp) -> Result<bool, Error> {
        let is_over = |writing: &Writing| {
            writing.log.length() >= MAX_LOG_BYTES
                || now.since(writing.began) >= MAX_LOG_AGE
                || writing.log.is_lost()
        };
        if self.writing.as_ref().is_some_and(is_over) {
            let lost = self.writing.as_ref().is_some_and(|writing| writing.log.is_lost());
            if !lost {
                self.commit()?;
            }
            self.writing = None;
        }
        let writing = match &mut self.writing {
            Some(writing) => writing,
            None => {
                let begun = self.begin(now)?;
                self.writing.insert(begun)
            }
        };
        let is_added = writing.log.append(writing.index, writing.sequence, entry).is_some();
        writing.sequence += i64::from(is_added);
        Ok(is_added)
    }

    fn begin(&mut self, now: Timestamp) -> Result<Writing, Error> {
        self.retain(now)?;
        let generation = self.files.last_key_value().map_or(0, |(last, _)| last + 1);
        let name = name_of(self.name, generation, now);
        let path = self.folder.join(&name);
        let mut log = LogWriter::create(self.disk.clone(), path.clone(), generation, CAPACITY)?;
        self.files.insert(generation, (name, 0));
        let synced = self.disk.sync_folder(&self.folder);
        synced.map_err(io_at(&self.folder, "the folder cannot be synced"))?;
        let index = log.describe(0, self.name.as_bytes());
        let index = index.ok_or_else(|| Error::refused(&path, &"it has no room"))?;
        Ok(Writing { log, generation, began: now, index, sequence: 0 })
    }

    /// Makes all entries durable.
    ///
    /// # Errors
    /// The log cannot be written; entries that wait are written by the next commit.
    pub fn commit(&mut self) -> Result<(), Error> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        writing.log.commit(Level::Disk)?;
        if let Some((_, bytes)) = self.files.get_mut(&writing.generation) {
            *bytes = writing.log.length();
        }
        Ok(())
    }

    /// Removes the oldest logs, until the limits hold. A log ends a day after it began at the latest.
    fn retain(&mut self, now: Timestamp) -> Result<(), Error> {
        let oldest = i64::try_from(self.limits.max_age.as_nanos()).unwrap_or(i64::MAX);
        let oldest = now.as_nanos().saturating_sub(oldest) / 1_000_000_000;
        loop {
            let bytes: u64 = self.files.values().map(|(_, bytes)| bytes).sum();
            let Some((generation, (name, _))) = self.files.iter().next() else { return Ok(()) };
            let ended =
                parse(self.name, name).map_or(0, |(_, began)| began + MAX_LOG_AGE.as_secs());
            let is_old = i64::try_from(ended).is_ok_and(|ended| ended < oldest);
            if !is_old && bytes.saturating_add(MAX_LOG_BYTES) <= self.limits.max_bytes {
                return Ok(());
            }
            let (generation, path) = (*generation, self.folder.join(name));
            match self.disk.remove(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(io_at(&path, "it cannot be removed")(e));
                }
                _ => {}
            }
            self.files.remove(&generation);
        }
    }

    /// Returns the logs, the oldest first, to be read by [`read`](Self::read) without this one.
    pub fn logs(&self) -> Vec<(u64, PathBuf)> {
        let path =
            |(generation, (name, _)): (&u64, &(String, u64))| (*generation, self.folder.join(name));
        self.files.iter().map(path).collect()
    }

    /// Passes the committed entries of a log to `visit`, and returns the number of those that are known to be lost. A log
    /// that was removed meanwhile has no entries.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn read(
        (generation, path): &(u64, PathBuf),
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<u64, Error> {
        let bytes = match OsDisk.read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            read => read.map_err(io_at(path, "it cannot be read"))?,
        };
        let scanned = scan(&bytes, *generation, &mut |record| {
            if let Record::Entry { content, .. } = record {
                visit(content);
            }
        });
        match scanned {
            Ok(scanned) => Ok(scanned.losses.frames + scanned.losses.orphans),
            Err(NotALog::Damaged) => Ok(1),
            Err(NotALog::Newer(layout)) => Err(Error::newer(path, layout)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn all(log: &Journal) -> Vec<String> {
        let mut all = Vec::new();
        for file in log.logs() {
            let lost = Journal::read(&file, &mut |entry| {
                all.push(String::from_utf8_lossy(entry).into_owned());
            });
            assert_eq!(lost.expect("read"), 0);
        }
        all
    }

    #[test]
    fn committed_entries_are_read_after_the_process_and_others_are_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let limits = JournalLimits::default();
        for run in 0..3 {
            let mut log = Journal::open(dir.path(), "reads", limits).expect("open");
            assert!(Journal::open(dir.path(), "reads", limits).is_err(), "it has one writer");
            assert!(log.append(format!("{run}").as_bytes(), at(run)).expect("room"));
            log.commit().expect("committed");
            assert!(log.append(b"lost", at(run)).expect("room"));
            assert!(!log.append(&vec![0; MAX_ENTRY_BYTES + 1], at(run)).expect("a log"));
        }
        let log = Journal::open(dir.path(), "reads", limits).expect("open");
        assert_eq!(all(&log), ["0", "1", "2"]);
    }

    #[test]
    fn the_oldest_logs_go_by_bytes_and_by_age() {
        let dir = tempfile::tempdir().expect("a folder");
        let limits = JournalLimits {
            max_bytes: 3 * MAX_LOG_BYTES,
            max_age: Duration::from_secs(10 * 86_400),
        };
        let mut log = Journal::open(dir.path(), "reads", limits).expect("open");
        let entry = vec![b'x'; MAX_ENTRY_BYTES];
        for second in 0..2000 {
            assert!(log.append(&entry, at(second)).expect("room"));
            log.commit().expect("committed");
            let on_disk: u64 = std::fs::read_dir(dir.path())
                .expect("a folder")
                .map(|file| file.expect("a file").metadata().expect("a file").len())
                .sum();
            assert!(on_disk <= limits.max_bytes + MAX_ENTRY_BYTES as u64 + 4096, "{on_disk}");
        }
        assert!(log.logs().len() >= 2);
        // Entries of a day stay for ten days after its end.
        log.append(b"new", at(12 * 86_400)).expect("room");
        log.commit().expect("committed");
        log.append(b"newer", at(24 * 86_400)).expect("room");
        log.commit().expect("committed");
        assert_eq!(all(&log), ["newer"]);
    }
}
