//! The logs of an intake, and the number of unsealed records in each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::jobs::Place;
use crate::log::{Disk, DiskFile, Error, io_at, quarantine};

/// The most open files of logs that are read.
const MAX_OPEN: usize = 64;

pub(super) fn log_name(generation: u64) -> String {
    format!("log-{generation:08}")
}

/// Returns the generation of a log with this name.
pub(super) fn generation_of(name: &str) -> Option<u64> {
    name.strip_prefix("log-").and_then(|number| number.parse().ok())
}

/// A log that may have unsealed records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogUse {
    pub(super) unsealed: u64,
    pub(super) bytes: u64,
    /// True if some of it could not be read. Then it is moved aside instead of being removed.
    pub(super) is_damaged: bool,
}

/// The logs of a folder.
#[derive(Debug)]
pub(super) struct Logs {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    pub(super) uses: BTreeMap<u64, LogUse>,
    open: BTreeMap<u64, Arc<dyn DiskFile>>,
}

impl Logs {
    pub(super) fn new(disk: Arc<dyn Disk>, folder: &Path) -> Self {
        Self { disk, folder: folder.to_path_buf(), uses: BTreeMap::new(), open: BTreeMap::new() }
    }

    pub(super) fn path(&self, generation: u64) -> PathBuf {
        self.folder.join(log_name(generation))
    }

    /// Returns the bytes of all closed logs.
    pub(super) fn bytes(&self) -> u64 {
        self.uses.values().map(|log| log.bytes).sum()
    }

    pub(super) fn added(&mut self, generation: u64) {
        self.uses.entry(generation).or_default().unsealed += 1;
    }

    pub(super) fn removed(&mut self, generation: u64) {
        if let Some(log) = self.uses.get_mut(&generation) {
            log.unsealed = log.unsealed.saturating_sub(1);
        }
    }

    /// Removes the logs below `current` without unsealed records. One that cannot be removed is tried again.
    pub(super) fn remove_sealed(&mut self, current: u64) -> Result<(), Error> {
        let is_done = |(generation, log): (&u64, &LogUse)| {
            (*generation < current && log.unsealed == 0).then_some(*generation)
        };
        let done: Vec<u64> = self.uses.iter().filter_map(is_done).collect();
        for generation in done {
            self.open.remove(&generation);
            if self.uses.get(&generation).is_some_and(|log| log.is_damaged) {
                quarantine(&*self.disk, &self.folder, &log_name(generation))?;
            } else {
                self.remove(generation)?;
            }
            self.uses.remove(&generation);
        }
        Ok(())
    }

    /// Removes the file of a generation, if there is one.
    pub(super) fn remove(&mut self, generation: u64) -> Result<(), Error> {
        let path = self.path(generation);
        match self.disk.remove(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(io_at(&path, "it cannot be removed")(e))
            }
            _ => Ok(()),
        }
    }

    /// Opens the log of a generation to read it. The file of the generation `current` may be replaced by another one at
    /// any commit, so it is not kept open.
    pub(super) fn file(
        &mut self,
        generation: u64,
        current: u64,
    ) -> Result<Arc<dyn DiskFile>, Error> {
        if let Some(file) = self.open.get(&generation) {
            return Ok(file.clone());
        }
        let path = self.path(generation);
        let file = self.disk.open_to_read(&path).map_err(io_at(&path, "it cannot be opened"))?;
        let file: Arc<dyn DiskFile> = file.into();
        if generation != current {
            if self.open.len() >= MAX_OPEN {
                self.open.pop_first();
            }
            self.open.insert(generation, file.clone());
        }
        Ok(file)
    }

    /// Reads the content of an entry.
    pub(super) fn read(&mut self, place: &Place, current: u64) -> Result<Vec<u8>, Error> {
        let file = self.file(place.generation, current)?;
        let mut bytes = vec![0; place.length as usize];
        let path = self.path(place.generation);
        file.read_at(&mut bytes, place.at).map_err(io_at(&path, "it cannot be read"))?;
        Ok(bytes)
    }
}
