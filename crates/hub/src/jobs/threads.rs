//! The threads of the storage: one commits, one seals.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use skopos_model::job::JobId;
use skopos_model::unpoisoned;
use skopos_store::jobs::catalogue::MAX_CHANGE;
use skopos_store::jobs::{Change, JobEntry, JobPart, PartRef};
use skopos_term::tell;

use super::chores::Chores;
use super::sealed::OfSite;
use super::shared::{AnyError, Shared, described, is_away, now};
use super::troubles::Work;

/// Pause between two looks for jobs that are due, and between two updates of running jobs in the catalogue: a running job
/// is found within a second.
const SEAL_EVERY: Duration = Duration::from_millis(500);

/// Pause after a commit that failed.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The longest time for which due parts wait for others, so that a segment has many.
const SEAL_AFTER: Duration = Duration::from_secs(10);

/// The most parts of a segment.
const SEGMENT_PARTS: usize = 500;

/// The most bytes of the records that are sealed at once. They are in memory until the segment is written.
const SEGMENT_BYTES: u64 = 64 << 20;

/// The most entries of running jobs that the catalogue gets at once. The intake takes no record while they are copied.
const MAX_TOLD: usize = 250;

/// The threads, until they are dropped.
#[derive(Debug)]
pub(super) struct Threads {
    shared: Arc<Shared>,
    running: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts the threads. If the catalogue `is_behind`, it gets the segments that it does not know first.
    pub(super) fn start(shared: &Arc<Shared>, is_behind: bool) -> io::Result<Self> {
        let mut threads = Self { shared: shared.clone(), running: Vec::new() };
        let log = shared.clone();
        threads.running.push(named("job-log").spawn(move || commit(&log))?);
        let sealing = shared.clone();
        threads.running.push(named("job-seal").spawn(move || seal(&sealing, is_behind))?);
        Ok(threads)
    }
}

fn named(name: &str) -> Builder {
    Builder::new().name(name.to_owned())
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.signal.end();
        for thread in self.running.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Commits what was accepted, a few milliseconds after it came.
fn commit(shared: &Shared) {
    while let Some(waiting) = shared.signal.next() {
        match shared.commit() {
            Ok(()) => {
                shared.note(Work::Committing, Ok(()));
                shared.commits.send_modify(|commits| *commits += 1);
            }
            Err(e) => {
                shared.note(Work::Committing, Err(e));
                if shared.signal.pause(RETRY_AFTER) {
                    // The producers have no acknowledgement, and send the records again.
                    return;
                }
                shared.signal.accept(waiting);
            }
        }
    }
}

/// Seals the parts that are due, and tells the catalogue about running jobs. Nothing is sealed while the catalogue is away:
/// records stay in the log, and a full log slows the producers.
fn seal(shared: &Shared, mut is_behind: bool) {
    let (mut waiting, mut chores) = (Waiting::default(), Chores::new());
    loop {
        if is_behind {
            let caught_up = shared.catch_up();
            is_behind = caught_up.is_err();
            shared.note(Work::Telling, caught_up);
            if is_behind {
                if shared.signal.pause(SEAL_EVERY) {
                    return;
                }
                continue;
            }
        }
        let sealed = shared.seal_due(&mut waiting);
        shared.note(Work::Sealing, sealed);
        let told = shared.tell_running();
        shared.note(Work::Telling, told);
        if chores.is_time() {
            let done = chores.run(shared);
            shared.note(Work::Chores, done);
        }
        if shared.signal.pause(SEAL_EVERY) {
            return;
        }
    }
}

/// The parts that wait to be sealed.
#[derive(Debug, Default)]
struct Waiting {
    /// Parts that could not be sealed.
    stuck: Vec<JobPart>,
    /// The time since which parts are due.
    since: Option<Instant>,
}

impl Waiting {
    /// Returns true if due parts are to be sealed now: they are enough, or have waited.
    fn is_time(&mut self, due: usize, is_enough: bool) -> bool {
        if due == 0 {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let is_time = is_enough || since.elapsed() >= SEAL_AFTER;
        if is_time {
            self.since = None;
        }
        is_time
    }
}

impl Shared {
    /// Notes the result of a thread's work, and prints a warning if it begins to fail.
    fn note(&self, work: Work, result: Result<(), AnyError>) {
        let trouble = result.err().map(|e| described(&*e));
        let warning = unpoisoned(self.troubles.lock()).note(work, trouble, Instant::now());
        warning.iter().for_each(tell);
    }

    /// Commits what was accepted. A log that the kernel lost is opened anew: producers send again what was not durable.
    fn commit(&self) -> Result<(), AnyError> {
        let mut intake = self.intake();
        let committed = intake.commit().and_then(|()| intake.rotate(now()));
        if committed.is_err() && intake.is_lost() {
            let of_site = OfSite { site: &self.site, lts: &self.lts };
            intake.reopen(&of_site, now())?;
            // A stream that went on would have its lost records acknowledged with its next ones.
            self.reopened.fetch_add(1, Ordering::Relaxed);
        }
        Ok(committed?)
    }

    /// Tells the catalogue about segments that it does not know: the process ended between the two.
    pub(super) fn catch_up(&self) -> Result<(), AnyError> {
        let (mut known, mut after) = (BTreeSet::new(), String::new());
        loop {
            let page = self.catalogue.segments(&after)?;
            let Some(last) = page.last() else { break };
            after.clone_from(last);
            known.extend(page);
        }
        let (segments, ids) = self.lts.unknown(&known)?;
        let ids: Vec<JobId> = ids.into_iter().collect();
        for ids in ids.chunks(MAX_TOLD) {
            let of_site = OfSite { site: &self.site, lts: &self.lts };
            let entries = ids.iter().map(|id| of_site.entry(id));
            let entries = entries.collect::<Result<Vec<JobEntry>, _>>()?;
            self.catalogue.apply(&Change { entries: &entries, ..Change::default() })?;
        }
        for segments in segments.chunks(MAX_CHANGE) {
            self.catalogue.apply(&Change { segments, ..Change::default() })?;
        }
        Ok(())
    }

    /// Seals the parts that are due, once they fill a segment or have waited. Those that cannot be sealed are kept as they
    /// are, and tried again: another part with the same number would contradict the one that a segment may have already.
    fn seal_due(&self, waiting: &mut Waiting) -> Result<(), AnyError> {
        let mut failure = None;
        let mut parts = std::mem::take(&mut waiting.stuck).into_iter();
        while let Some(part) = parts.next() {
            let open = self.intake().job(&part.id).map(|job| job.next_part());
            if open.is_some_and(|next| next > part.number) {
                // Another part has its records.
                continue;
            }
            if let Err(e) = self.seal(std::slice::from_ref(&part)) {
                waiting.stuck.push(part);
                if is_away(&*e) {
                    // The others would fail, too, each after a time of waiting.
                    waiting.stuck.extend(parts);
                    return Err(e);
                }
                failure = Some(e);
            }
        }
        let mut unread = Vec::new();
        {
            let mut intake = self.intake();
            let due = intake.due(now(), SEGMENT_PARTS, SEGMENT_BYTES);
            let is_enough = due.len() >= SEGMENT_PARTS
                || intake.bytes_of(&due) >= SEGMENT_BYTES
                || intake.is_crowded()
                || self.is_awaited();
            if waiting.is_time(due.len(), is_enough) {
                // Only what is on the disk may leave the log.
                intake.commit()?;
                for id in due {
                    match intake.part(&id) {
                        Ok(part) => unread.extend(part),
                        // The other jobs do not wait for a log that cannot be opened.
                        Err(e) => failure = Some(e.into()),
                    }
                }
            }
        }
        let mut parts = Vec::new();
        for part in unread {
            let id = part.id().clone();
            match part.read() {
                Ok(part) => parts.push(part),
                Err(e) => {
                    self.intake().release(&id);
                    failure = Some(e.into());
                }
            }
        }
        if !parts.is_empty()
            && let Err(e) = self.seal(&parts)
        {
            failure = Some(e);
            waiting.stuck.extend(parts);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Seals parts: first the segment, then the catalogue, then the intake forgets their records. Each step may be repeated.
    fn seal(&self, parts: &[JobPart]) -> Result<(), AnyError> {
        let placed = self.lts.seal(parts, now())?;
        let places: Vec<PartRef> = placed.into_iter().map(|placed| placed.part).collect();
        let mut pairs: Vec<(&JobPart, JobEntry)> = Vec::new();
        let mut sealed_before: Vec<JobEntry> = Vec::new();
        for (part, place) in parts.iter().zip(&places) {
            let before = self.intake().entry_before(part);
            match before {
                Some(mut entry) => {
                    entry.add_part(part, place);
                    pairs.push((part, entry));
                }
                // An earlier attempt has sealed it, and may not have told the catalogue.
                None => {
                    let of_site = OfSite { site: &self.site, lts: &self.lts };
                    sealed_before.push(of_site.entry(&part.id)?);
                }
            }
        }
        let mut segments: Vec<String> = places.into_iter().map(|place| place.segment).collect();
        segments.sort_unstable();
        segments.dedup();
        let entries = pairs.iter().map(|(_, entry)| entry.clone());
        let entries: Vec<JobEntry> = entries.chain(sealed_before).collect();
        self.catalogue.apply(&Change {
            entries: &entries,
            segments: &segments,
            ..Change::default()
        })?;
        for (part, entry) in pairs {
            // Records are taken in between.
            self.intake().sealed(part, entry)?;
        }
        self.commits.send_modify(|commits| *commits += 1);
        Ok(())
    }

    /// Tells the catalogue about running jobs.
    fn tell_running(&self) -> Result<(), AnyError> {
        loop {
            let entries = self.intake().news(MAX_TOLD, now());
            if entries.is_empty() {
                return Ok(());
            }
            let is_last = entries.len() < MAX_TOLD;
            let change = Change { entries: &entries, ..Change::default() };
            if let Err(e) = self.catalogue.apply(&change) {
                self.intake().untold(&entries);
                return Err(e.into());
            }
            // News that came meanwhile wait, so that sealing goes on.
            if is_last {
                return Ok(());
            }
        }
    }
}
