//! Reads a folder of history, even while another process writes to it.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use skopos_model::{Timestamp, unpoisoned};

use super::block::{Block, LogContent};
use super::listing::{Listing, generations_of, log_name};
use super::part::Part;
use super::seal::PartName;
use crate::log::{self, Damage, Disk, Error, Losses, NotALog, OsDisk, io_at};

/// The most listings of a folder whose files disappear before they are opened, or that differs in each.
const ATTEMPTS: usize = 4;

/// A folder of history.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    /// The parts that were opened, and the logs with their lengths when they were read.
    cache: Mutex<HashMap<PathBuf, (u64, Opened)>>,
    /// The parts and logs of the last listing.
    listed: Mutex<Option<(Vec<PartName>, Vec<u64>)>>,
}

/// The stored samples of some times.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The parts, in the order in which they were written. Each sample is in one of them.
    pub parts: Vec<Arc<Part>>,
    /// Damaged files that may have had further samples.
    pub damaged: Vec<Damage>,
}

/// A file as it was read.
#[derive(Clone, Debug)]
struct Opened {
    part: Arc<Part>,
    losses: Losses,
}

impl Folder {
    /// Returns a reader of the folder at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::on(Arc::new(OsDisk), path.into())
    }

    pub(super) fn on(disk: Arc<dyn Disk>, path: PathBuf) -> Self {
        Self { path, disk, cache: Mutex::default(), listed: Mutex::default() }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the parts that may have samples of these times, and the logs that are not sealed yet. A damaged file
    /// is left out and named.
    ///
    /// # Errors
    /// A file cannot be read; the error names it.
    pub fn find(&self, times: &RangeInclusive<Timestamp>) -> Result<Found, Error> {
        let times = times.start().as_nanos()..=times.end().as_nanos();
        let mut attempt = 1;
        loop {
            match self.try_find(&times) {
                // The file was sealed, removed or moved aside after the listing.
                Err(e) if e.is_gone() && attempt < ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    /// Returns the damaged files that were moved aside, and the generations of which no file is left.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn damaged(&self) -> Result<Vec<Damage>, Error> {
        Ok(known_damage(&self.list()?, &(i64::MIN..=i64::MAX)))
    }

    /// Lists the folder until it has the same files as in the listing before. A listing is not made at once: it may miss a
    /// part that appears meanwhile, and also the files that this part replaces and that are removed then.
    fn list(&self) -> Result<Listing, Error> {
        // This listing ended before the next one begins. No lock is held meanwhile: the file system may hang.
        let mut before = unpoisoned(self.listed.lock()).clone();
        let mut listing = Listing::of(&*self.disk, &self.path)?;
        for _ in 1..ATTEMPTS {
            let files = Some(listing.files());
            if before == files {
                break;
            }
            before = files;
            listing = Listing::of(&*self.disk, &self.path)?;
        }
        *unpoisoned(self.listed.lock()) = Some(listing.files());
        Ok(listing)
    }

    fn try_find(&self, times: &RangeInclusive<i64>) -> Result<Found, Error> {
        let listing = self.list()?;
        self.evict(&listing);
        let mut damaged = known_damage(&listing, times);
        let mut parts: Vec<(u64, Arc<Part>)> = Vec::new();
        // A part has the whole logs of its generations.
        let is_open = |generation: &&u64| listing.part_of(**generation).is_none();
        let mut logs: Vec<u64> = listing.logs.keys().filter(is_open).copied().collect();
        let mut wanted: Vec<PartName> = listing.parts.values().map(|it| it.0.clone()).collect();
        while let Some(name) = wanted.pop() {
            if name.from > *times.end() || name.to < *times.start() {
                continue;
            }
            match self.part(&name) {
                Ok(part) => parts.push((name.first, part)),
                Err(e) if !e.is_damage() => return Err(e),
                Err(e) => {
                    let (older, instead) = listing.instead_of(&name);
                    let found: u64 = older.iter().map(PartName::count).sum();
                    if found + (instead.len() as u64) < name.count() {
                        damaged.push(Damage { file: name.file_name(), why: e.why() });
                    }
                    wanted.extend(older);
                    logs.extend(instead);
                }
            }
        }
        let newest = listing.last();
        for generation in logs {
            let of_log = |why: String| Damage { file: log_name(generation), why };
            let bytes = listing.logs.get(&generation).copied().unwrap_or(0);
            match self.log(generation, bytes) {
                Ok(Opened { part, losses }) => {
                    parts.push((generation, part));
                    let is_open = newest == Some(generation);
                    damaged.extend(describe(&losses, is_open).map(of_log));
                }
                Err(e) if e.is_damage() => damaged.push(of_log(e.why())),
                Err(e) => return Err(e),
            }
        }
        parts.sort_by_key(|(generation, _)| *generation);
        Ok(Found { parts: parts.into_iter().map(|(_, part)| part).collect(), damaged })
    }

    fn part(&self, name: &PartName) -> Result<Arc<Part>, Error> {
        let path = self.path.join(name.file_name());
        let open = |path: &Path| {
            let part = Arc::new(Part::open_on(&*self.disk, path)?);
            Ok(Opened { part, losses: Losses::default() })
        };
        Ok(self.opened(path, 0, open)?.part)
    }

    fn log(&self, generation: u64, bytes: u64) -> Result<Opened, Error> {
        let open = |path: &Path| {
            let content = read_log(&*self.disk, path, generation)?;
            let losses = content.losses;
            let part = Arc::new(Part::of_block(Block::new(content.sorted())));
            Ok(Opened { part, losses })
        };
        self.opened(self.path.join(log_name(generation)), bytes, open)
    }

    /// Evicts files that were removed, sealed or merged.
    fn evict(&self, listing: &Listing) {
        let mut cache = unpoisoned(self.cache.lock());
        if cache.len() > listing.parts.len() + listing.logs.len() {
            let parts = listing.parts.values().map(|(part, _)| part.file_name());
            let logs = listing.logs.keys().map(|generation| log_name(*generation));
            let names: HashSet<String> = parts.chain(logs).collect();
            let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
            cache.retain(|path, _| name(path).is_some_and(|name| names.contains(&name)));
        }
    }

    /// Returns an opened file, from the cache unless the length of the file has changed.
    fn opened(
        &self,
        path: PathBuf,
        length: u64,
        open: impl FnOnce(&Path) -> Result<Opened, Error>,
    ) -> Result<Opened, Error> {
        let cache = || unpoisoned(self.cache.lock());
        if let Some((known, opened)) = cache().get(&path)
            && *known == length
        {
            return Ok(opened.clone());
        }
        let opened = open(&path)?;
        cache().insert(path, (length, opened.clone()));
        Ok(opened)
    }
}

/// Reads the log of a generation.
pub(super) fn read_log(disk: &dyn Disk, path: &Path, generation: u64) -> Result<LogContent, Error> {
    let bytes = disk.read(path).map_err(io_at(path, "the log cannot be read"))?;
    LogContent::read(&bytes, generation).map_err(|e| match e {
        NotALog::Damaged => Error::damaged(path, &"it does not begin like a log"),
        NotALog::Newer(found) => Error::newer(path, found),
    })
}

/// Describes the losses of a log; `None` if there are none. The last bytes of an open log may be a frame that is being
/// written.
pub(super) fn describe(losses: &Losses, is_open: bool) -> Option<String> {
    let Losses { frames, orphans, tail } = *losses;
    let tail = if is_open { 0 } else { tail };
    let some = |count: u64, what: &str| (count > 0).then(|| format!("{what}: {count}"));
    let all = [
        some(frames, "lost frames"),
        some(orphans, "samples whose series is not known"),
        some(tail, "bytes at its end that are not a frame"),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Returns the damage that names alone show, of files that may have had samples of these times.
fn known_damage(listing: &Listing, times: &RangeInclusive<i64>) -> Vec<Damage> {
    let aside = listing.quarantined.iter().filter(|file| {
        match (PartName::parse(&file.name), generations_of(&file.name)) {
            (Some(part), _) => {
                part.from <= *times.end() && part.to >= *times.start() && !listing.has(&part)
            }
            (None, Some(log)) => listing.may_overlap(*log.start(), times),
            (None, None) => true,
        }
    });
    let aside = aside.map(|file| {
        let why = "it was moved aside".to_owned();
        Damage { file: format!("{}/{}", log::FOLDER, file.name), why }
    });
    let gaps = listing.gaps().into_iter().filter(|gap| listing.may_overlap(*gap.start(), times));
    let gaps = gaps.map(|gap| {
        let (first, last) = gap.into_inner();
        let file = match first == last {
            true => format!("generation {first}"),
            false => format!("generations {first} to {last}"),
        };
        Damage { file, why: "no file of it is left".to_owned() }
    });
    aside.chain(gaps).collect()
}
