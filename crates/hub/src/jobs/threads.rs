//! The threads of the storage: one commits, one seals.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use skopos_model::job::JobId;
use skopos_model::unpoisoned;
use skopos_store::jobs::catalogue::MAX_CHANGE;
use skopos_store::jobs::{Change, JobEntry, JobPart, PartRef};

use super::shared::{Shared, described, is_away, now};

/// Pause between two looks for jobs that are due, and between two updates of running jobs in the catalogue: a running job
/// is found within a second.
const SEAL_EVERY: Duration = Duration::from_millis(500);

/// Pause after a commit that failed.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The most parts of a segment.
const SEGMENT_PARTS: usize = 500;

/// The most bytes of the records that are sealed at once. They are in memory until the segment is written.
const SEGMENT_BYTES: u64 = 64 << 20;

/// The most entries of running jobs that the catalogue gets at once.
const MAX_TOLD: usize = 1000;

/// Places of the work in the list of troubles.
const COMMITTING: usize = 0;
const SEALING: usize = 1;
const TELLING: usize = 2;

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
        let mut intake = shared.intake();
        let committed = intake.commit().and_then(|()| intake.rotate(now()));
        drop(intake);
        match committed {
            Ok(()) => {
                shared.note(COMMITTING, Ok(()));
                shared.commits.send_modify(|commits| *commits += 1);
            }
            Err(e) => {
                shared.note(COMMITTING, Err(e.into()));
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
    let mut stuck = Vec::new();
    loop {
        if is_behind {
            let caught_up = shared.catch_up();
            is_behind = caught_up.is_err();
            shared.note(SEALING, caught_up);
            if is_behind {
                if shared.signal.pause(SEAL_EVERY) {
                    return;
                }
                continue;
            }
        }
        let sealed = shared.seal_due(&mut stuck);
        shared.note(SEALING, sealed);
        let told = shared.tell_running();
        shared.note(TELLING, told);
        if shared.signal.pause(SEAL_EVERY) {
            return;
        }
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl Shared {
    /// Notes the result of a thread's work.
    fn note(&self, thread: usize, result: Result<(), AnyError>) {
        unpoisoned(self.trouble.lock())[thread] = result.err().map(|e| described(&*e));
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
            let entries = ids.iter().map(|id| self.lts.entry(&self.site, id));
            let entries = entries.collect::<Result<Vec<JobEntry>, _>>()?;
            self.catalogue.apply(&Change { entries: &entries, ..Change::default() })?;
        }
        for segments in segments.chunks(MAX_CHANGE) {
            self.catalogue.apply(&Change { segments, ..Change::default() })?;
        }
        Ok(())
    }

    /// Seals the parts that are due. Those that cannot be sealed are kept as they are, and tried again: another part with
    /// the same number would contradict the one that a segment may have already.
    fn seal_due(&self, stuck: &mut Vec<JobPart>) -> Result<(), AnyError> {
        let mut failure = None;
        let mut parts = std::mem::take(stuck).into_iter();
        while let Some(part) = parts.next() {
            if let Err(e) = self.seal(std::slice::from_ref(&part)) {
                stuck.push(part);
                if is_away(&*e) {
                    // The others would fail, too, each after a time of waiting.
                    stuck.extend(parts);
                    return Err(e);
                }
                failure = Some(e);
            }
        }
        let mut parts = Vec::new();
        {
            let mut intake = self.intake();
            let due = intake.due(now(), SEGMENT_PARTS, SEGMENT_BYTES);
            if !due.is_empty() {
                // Only what is on the disk may leave the log.
                intake.commit()?;
            }
            for id in due {
                match intake.part(&id) {
                    Ok(part) => parts.extend(part),
                    // The other jobs do not wait for a log that cannot be read.
                    Err(e) => failure = Some(e.into()),
                }
            }
        }
        if !parts.is_empty()
            && let Err(e) = self.seal(&parts)
        {
            failure = Some(e);
            stuck.extend(parts);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Seals parts: first the segment, then the catalogue, then the intake forgets their records. Each step may be repeated.
    fn seal(&self, parts: &[JobPart]) -> Result<(), AnyError> {
        let placed = self.lts.seal(parts, now())?;
        let places: Vec<PartRef> = placed.into_iter().map(|placed| placed.part).collect();
        let pairs: Vec<(&JobPart, JobEntry)> = {
            let intake = self.intake();
            // A part that an earlier attempt sealed to the end is not open any more.
            let is_open = |part: &JobPart| {
                intake.job(&part.id).is_some_and(|job| job.next_part() == part.number)
            };
            let pairs = parts.iter().zip(&places).filter(|(part, _)| is_open(part));
            let entry = |(part, place)| Some((part, intake.entry_after(part, place)?));
            pairs.filter_map(entry).collect()
        };
        let mut segments: Vec<String> = places.into_iter().map(|place| place.segment).collect();
        segments.sort_unstable();
        segments.dedup();
        let entries: Vec<JobEntry> = pairs.iter().map(|(_, entry)| entry.clone()).collect();
        self.catalogue.apply(&Change {
            entries: &entries,
            segments: &segments,
            ..Change::default()
        })?;
        let mut intake = self.intake();
        intake.commit()?;
        for (part, entry) in pairs {
            intake.sealed(part, entry)?;
        }
        Ok(())
    }

    fn tell_running(&self) -> Result<(), AnyError> {
        loop {
            let entries = self.intake().news(MAX_TOLD);
            if entries.is_empty() {
                return Ok(());
            }
            self.catalogue.apply(&Change { entries: &entries, ..Change::default() })?;
            self.intake().told(&entries);
            if entries.len() < MAX_TOLD {
                return Ok(());
            }
        }
    }
}
