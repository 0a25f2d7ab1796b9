//! Reads a folder of history, also while another process writes it.

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

/// How often a folder is listed again because a file went while it was opened.
const ATTEMPTS: usize = 4;

/// A folder of history.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Parts that were opened, and the log as it was last read with its length then.
    kept: Mutex<HashMap<PathBuf, (u64, Arc<Part>)>>,
}

/// What is in a folder, by generation.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) parts: BTreeMap<u64, PartName>,
    pub(super) logs: Vec<u64>,
    /// What a writer that was killed left behind.
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
        // A part has all of the log of its generation, which is only not removed yet.
        listing.logs.retain(|generation| !listing.parts.contains_key(generation));
        listing.logs.sort_unstable();
        Ok(listing)
    }
}

impl Folder {
    /// The folder at `path`; it need not be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), kept: Mutex::default() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The parts that may have samples of these times, and what is not sealed yet: each sample is in
    /// one of them.
    ///
    /// # Errors
    /// A file cannot be read; what is damaged is named.
    pub fn parts(&self, times: &RangeInclusive<Timestamp>) -> Result<Vec<Arc<Part>>, Error> {
        let mut attempt = 1;
        loop {
            match self.try_parts(times) {
                // Sealed or removed since it was listed.
                Err(e) if e.is_gone() && attempt < ATTEMPTS => attempt += 1,
                found => return found,
            }
        }
    }

    fn try_parts(&self, times: &RangeInclusive<Timestamp>) -> Result<Vec<Arc<Part>>, Error> {
        let listing = Listing::of(&self.path)?;
        self.forget_all_but(&listing);
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

    /// What retention removed and what was sealed is not opened again.
    fn forget_all_but(&self, listing: &Listing) {
        let mut kept = unpoisoned(self.kept.lock());
        if kept.len() > listing.parts.len() + listing.logs.len() {
            kept.retain(|path, _| path.exists());
        }
    }

    /// The part of a file, read anew if it is longer than it was.
    fn opened<T>(
        &self,
        path: PathBuf,
        length: u64,
        read: impl FnOnce() -> Result<T, Error>,
        open: impl FnOnce(&Path, T) -> Result<Part, Error>,
    ) -> Result<Arc<Part>, Error> {
        let kept = || unpoisoned(self.kept.lock());
        if let Some((known, part)) = kept().get(&path)
            && *known == length
        {
            return Ok(part.clone());
        }
        let part = Arc::new(open(&path, read()?)?);
        kept().insert(path, (length, part.clone()));
        Ok(part)
    }
}
