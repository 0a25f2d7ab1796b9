//! The threads of the storage: one commits, one seals.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use skopos_model::unpoisoned;
use skopos_store::jobs::catalogue::MAX_CHANGE;
use skopos_store::jobs::{Change, JobEntry, JobPart, PartRef};

use super::store::{Shared, described, now};

/// Pause between two looks for jobs that are due, and between two updates of running jobs in the catalogue: a running job
/// is found within a second.
const SEAL_EVERY: Duration = Duration::from_millis(500);

/// Pause after a commit that failed.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The most parts of a segment.
const SEGMENT_PARTS: usize = 500;

/// Bytes of accepted records after which a commit does not wait for more.
const COMMIT_BYTES: u64 = 1 << 20;

/// Time for which a commit waits for more records.
const COMMIT_AFTER: Duration = Duration::from_millis(5);

/// The threads, until they are dropped.
#[derive(Debug)]
pub(super) struct Threads {
    shared: Arc<Shared>,
    running: Vec<JoinHandle<()>>,
}

/// What the threads wait for.
#[derive(Debug, Default)]
pub(super) struct Signal {
    state: Mutex<State>,
    /// Notified of accepted records, and of the end.
    accepted: Condvar,
    /// Notified of the end.
    ended: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Bytes that were accepted since the last commit.
    waiting: u64,
    is_ending: bool,
}

impl Signal {
    /// Notes that records were accepted.
    pub(super) fn accept(&self, bytes: u64) {
        let mut state = unpoisoned(self.state.lock());
        let was_quiet = state.waiting == 0;
        state.waiting += bytes;
        if was_quiet || state.waiting >= COMMIT_BYTES {
            self.accepted.notify_one();
        }
    }

    /// Waits until records are to be committed; `None` at the end, if there are none.
    fn next(&self) -> Option<u64> {
        let state = unpoisoned(self.state.lock());
        let is_quiet = |state: &mut State| state.waiting == 0 && !state.is_ending;
        let state = unpoisoned(self.accepted.wait_while(state, is_quiet));
        let is_little = |state: &mut State| state.waiting < COMMIT_BYTES && !state.is_ending;
        let waited = self.accepted.wait_timeout_while(state, COMMIT_AFTER, is_little);
        let (mut state, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        let waiting = std::mem::take(&mut state.waiting);
        (waiting > 0).then_some(waiting)
    }

    /// Waits for a time, or for the end. Returns true at the end.
    fn pause(&self, time: Duration) -> bool {
        let state = unpoisoned(self.state.lock());
        let waited = self.ended.wait_timeout_while(state, time, |state| !state.is_ending);
        let (state, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        state.is_ending
    }

    fn end(&self) {
        unpoisoned(self.state.lock()).is_ending = true;
        self.accepted.notify_all();
        self.ended.notify_all();
    }
}

impl Threads {
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let mut threads = Self { shared: shared.clone(), running: Vec::new() };
        for (name, work) in [("job-log", commit as fn(&Shared)), ("job-seal", seal)] {
            let shared = shared.clone();
            let thread = Builder::new().name(name.to_owned());
            threads.running.push(thread.spawn(move || work(&shared))?);
        }
        Ok(threads)
    }
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
            Ok(()) => shared.commits.send_modify(|commits| *commits += 1),
            Err(e) => {
                shared.report(&e);
                if shared.signal.pause(RETRY_AFTER) {
                    // The producers have no acknowledgement, and send the records again.
                    return;
                }
                shared.signal.accept(waiting);
            }
        }
    }
}

/// Seals the parts that are due, and tells the catalogue about running jobs.
fn seal(shared: &Shared) {
    loop {
        match shared.seal_due().and_then(|()| shared.tell_running()) {
            Ok(()) => *unpoisoned(shared.trouble.lock()) = None,
            Err(e) => shared.report(&*e),
        }
        if shared.signal.pause(SEAL_EVERY) {
            return;
        }
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl Shared {
    fn report(&self, error: &dyn std::error::Error) {
        *unpoisoned(self.trouble.lock()) = Some(described(error));
    }

    /// Seals at most one segment.
    fn seal_due(&self) -> Result<(), AnyError> {
        let mut parts = Vec::new();
        {
            let mut intake = self.intake();
            // Only what is on the disk may leave the log.
            let due = intake.due(now(), SEGMENT_PARTS);
            if due.is_empty() {
                return Ok(());
            }
            intake.commit()?;
            for id in due {
                parts.extend(intake.part(&id)?);
            }
        }
        match self.seal(&parts) {
            Ok(()) => Ok(()),
            Err(e) => {
                let mut intake = self.intake();
                parts.iter().for_each(|part| intake.unsealed(part));
                Err(e)
            }
        }
    }

    /// Seals parts: first the segment, then the catalogue, then the intake forgets their records.
    fn seal(&self, parts: &[JobPart]) -> Result<(), AnyError> {
        let placed = self.lts.seal(parts, now())?;
        let places: Vec<PartRef> = placed.into_iter().map(|placed| placed.part).collect();
        let entries: Vec<JobEntry> = {
            let intake = self.intake();
            let pairs = parts.iter().zip(&places);
            pairs.filter_map(|(part, place)| intake.entry_after(part, place)).collect()
        };
        let mut segments: Vec<String> = places.into_iter().map(|place| place.segment).collect();
        segments.sort_unstable();
        segments.dedup();
        let (entries_ref, segments) = (&entries[..], &segments[..]);
        self.catalogue.apply(&Change { entries: entries_ref, segments, ..Change::default() })?;
        let mut intake = self.intake();
        for (part, entry) in parts.iter().zip(entries) {
            intake.sealed(part, entry)?;
        }
        Ok(())
    }

    fn tell_running(&self) -> Result<(), AnyError> {
        let news = self.intake().news();
        for entries in news.chunks(MAX_CHANGE) {
            self.catalogue.apply(&Change { entries, ..Change::default() })?;
        }
        Ok(())
    }
}
