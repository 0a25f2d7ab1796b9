//! The work beside pushing samples: seals finished logs, checks parts, moves damaged files aside, and removes the oldest
//! parts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use skopos_model::Timestamp;

use super::folder::{describe, read_log};
use super::limits::Limits;
use super::listing::{Listing, generation_of, log_name};
use super::part::Part;
use super::seal::{PartName, Sealer};
use crate::log::{self, Damage, Disk, Error, Lock, io_at};

/// Bytes of parts that one run checks. Runs are a minute apart, so a gigabyte is checked in an hour.
const CHECKED_BYTES: u64 = 16 << 20;

/// Time that one step of the clock counts for, at most: a clock that is set years ahead must not make all history old. It is
/// longer than a part is without a sample on a node that runs. After a node was off for longer, its parts stay longer.
const MAX_STEP: Duration = Duration::from_secs(86_400);

/// Seals finished logs, and removes parts that exceed a limit.
#[derive(Clone, Debug)]
pub struct Chores {
    disk: Arc<dyn Disk>,
    /// No other process may write to the folder while the chores run.
    _lock: Arc<Lock>,
    folder: PathBuf,
    limits: Limits,
    /// Generation of the log that is in use.
    open: u64,
    /// The first generation that the next run checks. Runs of one keeper share it.
    next_check: Arc<AtomicU64>,
}

/// The size of a folder, and what was found there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of parts.
    pub parts: u64,
    /// Bytes of all parts, logs and quarantined files.
    pub bytes: u64,
    /// Number of quarantined files.
    pub quarantined: u64,
    /// Damaged files that this run moved aside.
    pub damaged: Vec<Damage>,
    /// Errors of files that cannot be read, sealed or removed; everything else was done.
    pub errors: Vec<String>,
}

impl Chores {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        lock: Arc<Lock>,
        folder: PathBuf,
        limits: Limits,
        (open, next_check): (u64, Arc<AtomicU64>),
    ) -> Self {
        Self { disk, _lock: lock, folder, limits, open, next_check }
    }

    /// Does the chores. A file that cannot be read or written does not keep them from the others; the next run tries
    /// again.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn run(&self, now: Timestamp) -> Result<Report, Error> {
        let mut report = Report::default();
        let listing = Listing::of(&*self.disk, &self.folder)?;
        // An open log is never older than the one that was open when these chores were made.
        for generation in listing.logs.keys().filter(|generation| **generation < self.open) {
            // A file that makes the reader panic must not do so again in every run.
            let sealed = || match listing.parts.get(generation) {
                Some((part, _)) => self.finish(part),
                None => self.seal(*generation),
            };
            let name = log_name(*generation);
            match catch_unwind(AssertUnwindSafe(sealed)) {
                Ok(Ok(damage)) => report.damaged.extend(damage),
                Ok(Err(e)) if e.is_damage() => self.move_aside(&name, e.why(), &mut report),
                Ok(Err(e)) => report.errors.push(e.to_string()),
                Err(_) => self.move_aside(&name, "reading it panics".to_owned(), &mut report),
            }
        }
        self.check(&listing, &mut report);
        self.retain(now, &mut report)?;
        Ok(report)
    }

    /// Seals the log of a generation. Returns its damage, if some of it was lost; then the log is moved aside.
    fn seal(&self, generation: u64) -> Result<Option<Damage>, Error> {
        let path = self.folder.join(log_name(generation));
        let content = read_log(&*self.disk, &path, generation)?;
        let losses = describe(&content.losses, false);
        let mut sealer = Sealer::on(self.disk.clone(), &self.folder, generation)?;
        for (series, samples) in content.sorted() {
            sealer.push(series, samples)?;
        }
        sealer.finish()?;
        // Not before: the part is durable only now.
        self.drop_log(generation, losses)
    }

    /// Removes a log that has a part, which an earlier run could not remove or move aside.
    fn finish(&self, part: &PartName) -> Result<Option<Damage>, Error> {
        match check_part(&*self.disk, &self.folder, part) {
            // The log has the same samples: the next run seals it again.
            Err(e) if e.is_damage() => {
                let (file, why) = (part.file_name(), e.why());
                log::quarantine(&*self.disk, &self.folder, &file)?;
                Ok(Some(Damage { file, why }))
            }
            checked => {
                checked?;
                let folder = &self.folder;
                let synced = self.disk.sync_folder(folder);
                synced.map_err(io_at(folder, "the folder cannot be synced"))?;
                // The part shows nothing of the log's losses: it may have only what was left of the log.
                let path = folder.join(log_name(part.generation));
                let content = read_log(&*self.disk, &path, part.generation)?;
                self.drop_log(part.generation, describe(&content.losses, false))
            }
        }
    }

    /// Removes the log of a durable part, or moves it aside and returns its damage if some of it was lost.
    fn drop_log(&self, generation: u64, losses: Option<String>) -> Result<Option<Damage>, Error> {
        let name = log_name(generation);
        match losses {
            None => self.remove(&self.folder.join(&name))?,
            Some(_) => log::quarantine(&*self.disk, &self.folder, &name)?,
        }
        Ok(losses.map(|why| Damage { file: name, why }))
    }

    /// Checks the next parts.
    fn check(&self, listing: &Listing, report: &mut Report) {
        let next = self.next_check.load(Ordering::Relaxed);
        let mut checked = 0;
        for (generation, (part, bytes)) in listing.parts.range(next..) {
            if checked >= CHECKED_BYTES {
                self.next_check.store(*generation, Ordering::Relaxed);
                return;
            }
            checked += bytes;
            match check_part(&*self.disk, &self.folder, part) {
                Err(e) if e.is_damage() => self.move_aside(&part.file_name(), e.why(), report),
                Err(e) if !e.is_gone() => report.errors.push(e.to_string()),
                _ => {}
            }
        }
        self.next_check.store(0, Ordering::Relaxed);
    }

    fn move_aside(&self, name: &str, why: String, report: &mut Report) {
        match log::quarantine(&*self.disk, &self.folder, name) {
            Ok(()) => report.damaged.push(Damage { file: name.to_owned(), why }),
            Err(e) => report.errors.push(e.to_string()),
        }
    }

    /// Removes the first parts while they are too old, or all files take too much room, and quarantined files that are
    /// older than all parts.
    fn retain(&self, now: Timestamp, report: &mut Report) -> Result<(), Error> {
        let listing = Listing::of(&*self.disk, &self.folder)?;
        let ages = self.ages(&listing, now);
        let parts = listing.parts.values().map(|(_, bytes)| bytes);
        report.bytes = parts.chain(listing.logs.values()).sum();
        report.bytes += listing.quarantined.iter().map(|file| file.bytes).sum::<u64>();
        report.parts = listing.parts.len() as u64;
        let mut first = 0;
        for ((generation, (part, bytes)), age) in listing.parts.iter().zip(ages) {
            if age <= self.limits.max_age && report.bytes <= self.limits.max_bytes {
                break;
            }
            self.remove(&self.folder.join(part.file_name()))?;
            report.bytes -= bytes;
            report.parts -= 1;
            first = generation + 1;
        }
        for file in &listing.quarantined {
            if generation_of(&file.name).is_some_and(|generation| generation < first) {
                self.remove(&self.folder.join(log::FOLDER).join(&file.name))?;
                report.bytes -= file.bytes;
            } else {
                report.quarantined += 1;
            }
        }
        Ok(())
    }

    /// Returns the age of each part, in the order of generations: the time from its last sample to `now`, in which each
    /// part, and each pause between two parts, counts for a step at most. Parts may overlap.
    fn ages(&self, listing: &Listing, now: Timestamp) -> Vec<Duration> {
        let longest = MAX_STEP.max(self.limits.seal_every.saturating_mul(2));
        let (mut ages, mut age, mut later) = (Vec::new(), Duration::ZERO, now);
        for (part, _) in listing.parts.values().rev() {
            // A part without samples has no times: its range is empty.
            if part.from <= part.to {
                let (from, to) = (Timestamp::from_nanos(part.from), Timestamp::from_nanos(part.to));
                age += later.since(to).min(longest);
                // What overlaps the part behind it counts once; more than a step is a clock that was set.
                age = age.saturating_sub(
                    Some(to.since(later)).filter(|o| *o <= longest).unwrap_or_default(),
                );
                ages.push(age);
                age += to.since(from).min(longest);
                later = from;
            } else {
                ages.push(age);
            }
        }
        ages.reverse();
        ages
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        self.disk.remove(path).map_err(io_at(path, "it cannot be removed"))
    }
}

/// Checks all bytes of a part.
fn check_part(disk: &dyn Disk, folder: &Path, name: &PartName) -> Result<(), Error> {
    Part::open_on(disk, &folder.join(name.file_name()))?.check()
}
