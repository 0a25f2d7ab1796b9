//! The work beside pushing samples: seals finished logs, checks parts, moves damaged files aside, removes the oldest parts,
//! and merges small ones.

use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use skopos_model::Timestamp;

use super::due::{self, Bounds};
use super::folder::{describe, read_log};
use super::limits::{Limits, MAX_STEP};
use super::listing::{Listing, generations_of, log_name};
use super::merge;
use super::part::Part;
use super::seal::{PartName, Sealer};
use crate::log::{self, Damage, Disk, Error, Lock, io_at};

/// Bytes of parts that one run checks. Runs are a minute apart, so a gigabyte is checked in an hour.
const CHECKED_BYTES: u64 = 16 << 20;

/// Runs that merge nothing after a merge failed: about an hour. An attempt on a full disk takes the room that the log needs.
pub(super) const PAUSED_RUNS: u64 = 60;

/// The reason of a merge that failed in the reader of Parquet.
const PANICS: &str = "reading parts to merge them panics";

/// Seals finished logs, removes parts that exceed a limit, and merges small parts.
#[derive(Clone, Debug)]
pub struct Chores {
    disk: Arc<dyn Disk>,
    /// No other process may write to the folder while the chores run.
    _lock: Arc<Lock>,
    folder: PathBuf,
    limits: Limits,
    /// Generation of the log that is in use.
    open: u64,
    bounds: Bounds,
    progress: Arc<Progress>,
}

/// The progress of the chores of one keeper. Its runs share it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The first generation that the next run checks.
    check: AtomicU64,
    /// The first generation that the next run may merge: those before it are in no due parts, or could not be merged.
    merge: AtomicU64,
    /// Number of the next runs that merge nothing.
    paused: AtomicU64,
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
    /// Errors of files that cannot be read, sealed, merged or removed; everything else was done.
    pub errors: Vec<String>,
    /// The parts that this run merged.
    pub merges: Merges,
}

/// Counts of merged parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merges {
    /// Number of parts that took the place of several smaller ones.
    pub done: u64,
    /// Number of attempts that failed. The smaller parts are still in place.
    pub failed: u64,
    /// Bytes of the smaller parts.
    pub read_bytes: u64,
    /// Bytes of the new parts.
    pub written_bytes: u64,
}

impl AddAssign for Merges {
    fn add_assign(&mut self, other: Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

impl Chores {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        lock: Arc<Lock>,
        folder: PathBuf,
        limits: Limits,
        (open, progress): (u64, Arc<Progress>),
    ) -> Self {
        let bounds = Bounds::of(&limits);
        Self { disk, _lock: lock, folder, limits, open, bounds, progress }
    }

    /// Returns chores that merge parts within other bounds.
    #[cfg(test)]
    pub(super) fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Returns chores that do so also soon after a failure.
    #[cfg(test)]
    pub(super) fn merging(self, bounds: Bounds) -> Self {
        self.progress.paused.store(0, Ordering::Relaxed);
        self.progress.merge.store(0, Ordering::Relaxed);
        self.within(bounds)
    }

    /// Returns chores that check no part in their next run.
    #[cfg(test)]
    pub(super) fn unchecked(self) -> Self {
        self.progress.check.store(u64::MAX, Ordering::Relaxed);
        self
    }

    /// Does the chores. A file that cannot be read or written does not keep them from the others; the next run tries
    /// again.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn run(&self, now: Timestamp) -> Result<Report, Error> {
        let mut report = Report::default();
        self.finish_merges(&mut report)?;
        let listing = Listing::of(&*self.disk, &self.folder)?;
        // An open log is never older than the one that was open when these chores were made.
        for generation in listing.logs.keys().filter(|generation| **generation < self.open) {
            // A file that makes the reader panic must not do so again in every run.
            let sealed = || match listing.part_of(*generation) {
                Some(part) => self.finish(part, *generation),
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
        self.merge(&mut report)?;
        Ok(report)
    }

    /// Removes the parts that a merged part has replaced, if an earlier run could not.
    fn finish_merges(&self, report: &mut Report) -> Result<(), Error> {
        let listing = Listing::of(&*self.disk, &self.folder)?;
        for (part, _) in listing.parts.values() {
            let replaced = listing.replaced_by(part);
            if !replaced.is_empty() {
                let removed = merge::replace(&*self.disk, &self.folder, part, &replaced);
                self.note(removed.err(), report);
            }
        }
        Ok(())
    }

    /// Merges the next small parts.
    fn merge(&self, report: &mut Report) -> Result<(), Error> {
        let Progress { merge: from, paused, .. } = &*self.progress;
        let pause = paused.load(Ordering::Relaxed);
        if pause > 0 {
            paused.store(pause - 1, Ordering::Relaxed);
            return Ok(());
        }
        let listing = Listing::of(&*self.disk, &self.folder)?;
        let due = due::next(&listing, &self.bounds, from.load(Ordering::Relaxed));
        let next = due.first().map_or(0, |(part, _)| part.first.saturating_add(1));
        from.store(next, Ordering::Relaxed);
        // The copies of an earlier merge still take their room.
        if due.is_empty() || !listing.replaced.is_empty() {
            return Ok(());
        }
        let read = due.iter().map(|(_, bytes)| bytes).sum();
        let parts: Vec<PartName> = due.into_iter().map(|(part, _)| part).collect();
        let merged = || merge::merge(&self.disk, &self.folder, &parts);
        // A part that makes the reader panic must not keep the run from its report.
        let merged = catch_unwind(AssertUnwindSafe(merged));
        let merged = merged.unwrap_or_else(|_| Err(Error::refused(&self.folder, &PANICS)));
        let merged = merged.and_then(|(part, written)| {
            merge::replace(&*self.disk, &self.folder, &part, &parts)?;
            Ok(written)
        });
        match merged {
            Ok(written) => {
                report.merges =
                    Merges { done: 1, failed: 0, read_bytes: read, written_bytes: written };
                report.parts = report.parts.saturating_sub(parts.len() as u64 - 1);
                report.bytes = (report.bytes + written).saturating_sub(read);
            }
            Err(e) => {
                report.merges.failed = 1;
                paused.store(PAUSED_RUNS, Ordering::Relaxed);
                self.note(Some(e), report);
            }
        }
        Ok(())
    }

    /// Notes an error. A damaged file is moved aside.
    fn note(&self, error: Option<Error>, report: &mut Report) {
        let Some(error) = error else { return };
        let name = match &error {
            Error::Damaged { path, .. } => path.file_name().and_then(|name| name.to_str()),
            _ => None,
        };
        match name {
            Some(name) => self.move_aside(name, error.why(), report),
            None => report.errors.push(error.to_string()),
        }
    }

    /// Seals the log of a generation. Returns its damage, if some of it was lost; then the log is moved aside.
    fn seal(&self, generation: u64) -> Result<Option<Damage>, Error> {
        let path = self.folder.join(log_name(generation));
        let content = read_log(&*self.disk, &path, generation)?;
        let losses = describe(&content.losses, false);
        let mut sealer = Sealer::on(self.disk.clone(), &self.folder, generation..=generation)?;
        for (series, samples) in content.sorted() {
            sealer.push(series, samples)?;
        }
        sealer.finish()?;
        // Not before: the part is durable only now.
        self.drop_log(generation, losses)
    }

    /// Removes the log of a generation that has a part, which an earlier run could not remove or move aside.
    fn finish(&self, part: &PartName, generation: u64) -> Result<Option<Damage>, Error> {
        match Part::verify(&*self.disk, &self.folder.join(part.file_name())) {
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
                let path = folder.join(log_name(generation));
                let content = read_log(&*self.disk, &path, generation)?;
                self.drop_log(generation, describe(&content.losses, false))
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
        let progress = &self.progress.check;
        let next = progress.load(Ordering::Relaxed);
        let mut checked = 0;
        for (generation, (part, bytes)) in listing.parts.range(next..) {
            if checked >= CHECKED_BYTES {
                progress.store(*generation, Ordering::Relaxed);
                return;
            }
            checked += bytes;
            match Part::verify(&*self.disk, &self.folder.join(part.file_name())) {
                Err(e) if e.is_damage() => self.move_aside(&part.file_name(), e.why(), report),
                Err(e) if !e.is_gone() => report.errors.push(e.to_string()),
                _ => {}
            }
        }
        progress.store(0, Ordering::Relaxed);
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
        for ((part, bytes), age) in listing.parts.values().zip(ages) {
            if age <= self.limits.max_age && report.bytes <= self.limits.max_bytes {
                break;
            }
            // Before their merged part: otherwise they would be read again.
            for replaced in listing.replaced_by(part) {
                self.remove(&self.folder.join(replaced.file_name()))?;
            }
            self.remove(&self.folder.join(part.file_name()))?;
            report.bytes -= bytes;
            report.parts -= 1;
            first = part.last.saturating_add(1);
        }
        for file in &listing.quarantined {
            if generations_of(&file.name).is_some_and(|generations| *generations.end() < first) {
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
                // An overlap with the part behind it counts once; more than a step is a clock that was set.
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
