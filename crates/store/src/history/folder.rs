//! Reads a folder of history, even while another process writes to it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use skopos_model::{Timestamp, unpoisoned};

use super::block::Block;
use super::error::{Error, io_at};
use super::part::Part;
use super::seal::PartName;

/// The most listings of a folder whose files disappear before they are opened.
const ATTEMPTS: usize = 4;

/// A folder of history.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The parts that were opened, and the logs with their lengths when they were read.
    cache: Mutex<HashMap<PathBuf, (u64, Arc<Part>)>>,
}

/// The files of a folder, by generation.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) parts: BTreeMap<u64, PartName>,
    pub(super) logs: Vec<u64>,
    /// Temporary files that a killed writer left.
    pub(super) temporary: Vec<PathBuf>,
}

pub(super) fn log_name(generation: u64) -> String {
    format!("log-{generation:08}")
}

impl Listing {
    pub(super) fn of(path: &Path) -> Result<Self, Error> {
        let mut listing = Self::default();
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(listing),
            Err(e) => return Err(io_at(path, "the folder cannot be listed")(e)),
        };
        for entry in entries {
            let entry = entry.map_err(io_at(path, "the folder cannot be listed"))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(part) = PartName::parse(name) {
                listing.parts.insert(part.generation, part);
            } else if let Some(log) = name.strip_prefix("log-").and_then(|n| n.parse().ok()) {
                listing.logs.push(log);
            } else if name.starts_with("part-") && name.ends_with(".tmp") {
                listing.temporary.push(entry.path());
            }
        }
        // A part has the whole log of its generation, which was not removed yet.
        listing.logs.retain(|generation| !listing.parts.contains_key(generation));
        listing.logs.sort_unstable();
        Ok(listing)
    }
}

impl Folder {
    /// Returns a reader of the folder at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), cache: Mutex::default() }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the parts that may have samples of these times, and the logs that are not sealed yet. Each
    /// sample is in exactly one of them.
    ///
    /// # Errors
    /// A file cannot be read or is damaged; the error names it.
    pub fn parts(&self, times: &RangeInclusive<Timestamp>) -> Result<Vec<Arc<Part>>, Error> {
        let mut attempt = 1;
        loop {
            match self.try_parts(times) {
                // The file was sealed or removed after the listing.
                Err(e) if e.is_gone() && attempt < ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    fn try_parts(&self, times: &RangeInclusive<Timestamp>) -> Result<Vec<Arc<Part>>, Error> {
        let listing = Listing::of(&self.path)?;
        self.evict(&listing);
        let mut found = Vec::new();
        for part in listing.parts.values() {
            if part.from <= times.end().as_nanos() && part.to >= times.start().as_nanos() {
                let path = self.path.join(part.file_name());
                found.push(self.opened(path, 0, || Ok(()), |path, ()| Part::open(path))?);
            }
        }
        for generation in listing.logs {
            let path = self.path.join(log_name(generation));
            let length = fs::metadata(&path).map_err(io_at(&path, "the log cannot be read"))?.len();
            let read = || fs::read(&path).map_err(io_at(&path, "the log cannot be read"));
            let part = self.opened(path.clone(), length, read, |path, bytes| {
                Block::of_log(path, &bytes).map(Part::of_block)
            })?;
            found.push(part);
        }
        Ok(found)
    }

    /// Evicts files that were removed or sealed.
    fn evict(&self, listing: &Listing) {
        let mut cache = unpoisoned(self.cache.lock());
        if cache.len() > listing.parts.len() + listing.logs.len() {
            cache.retain(|path, _| path.exists());
        }
    }

    /// Returns the part of a file, from the cache unless the length of the file has changed.
    fn opened<T>(
        &self,
        path: PathBuf,
        length: u64,
        read: impl FnOnce() -> Result<T, Error>,
        open: impl FnOnce(&Path, T) -> Result<Part, Error>,
    ) -> Result<Arc<Part>, Error> {
        let cache = || unpoisoned(self.cache.lock());
        if let Some((known, part)) = cache().get(&path)
            && *known == length
        {
            return Ok(part.clone());
        }
        let part = Arc::new(open(&path, read()?)?);
        cache().insert(path, (length, part.clone()));
        Ok(part)
    }
}
