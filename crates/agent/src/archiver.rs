//! The archiver: keeps the published samples of this machine on disk. It reads shared memory like any other
//! program, on a thread of its own, and no publisher waits for it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use skopos_model::{Timestamp, Topic};
use skopos_shm::{Delivery, Host, Segment, SegmentVersions, Subscription, Vertex, now};
use skopos_store::history::{
    Damage, Error, Keeper, Level, Limits, PushOutcome, Report, Series, SeriesId,
};

mod facts;

pub use self::facts::folder_of;
use self::facts::{Counts, Facts};
use crate::names::MIRROR_NAME;
use skopos_term::Failure;

/// Time between two writes, and between two searches for publishers: `kill -9` loses at most this much.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Time between two syncs: a power failure loses at most this much.
const SYNC_EVERY: Duration = Duration::from_secs(30);

/// Time between two searches for files to seal, merge or remove.
const CHORES_EVERY: Duration = Duration::from_secs(60);

/// Time between two publications of the archiver's own facts.
const PUBLISH_EVERY: Duration = Duration::from_secs(5);

/// Bounds of the time between two readings of the rings, which adapts so that no ring is more than half full.
const SHORTEST_NAP: Duration = Duration::from_millis(5);
const LONGEST_NAP: Duration = Duration::from_millis(500);

/// A running archiver. It stops when it is dropped.
pub struct Archiver {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Archiver {
    /// Begins to keep the samples that are published in the runtime directory `dir`.
    ///
    /// # Errors
    /// Another archiver uses this folder already; the folder cannot be written.
    pub fn start(folder: &Path, limits: Limits, dir: PathBuf, node: &str) -> Result<Self, Failure> {
        let failed = |e: &dyn std::error::Error| Failure::new("history cannot be kept").because(e);
        let facts = Facts::new(&dir, node)?;
        let keeper = Keeper::open(folder, limits, now()).map_err(|e| failed(&e))?;
        // An absolute path is valid in every working directory.
        facts.publish_folder(&std::fs::canonicalize(folder).map_err(|e| failed(&e))?)?;
        // The nodes keep their own facts, so mirrored facts are left out.
        let host = Host::open_dirs(vec![dir])?.without(MIRROR_NAME);
        let stop = Arc::new(AtomicBool::new(false));
        let run = {
            let stop = stop.clone();
            move || Archive::new(host, keeper, facts).run(&stop)
        };
        let thread = std::thread::Builder::new().name("archiver".to_owned()).spawn(run);
        let thread = thread.map_err(|e| failed(&e))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Archiver {
    /// Writes the last samples, and stops.
    ///
    /// # Errors
    /// Samples cannot be written, and are lost.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.thread().unpark();
        thread
            .join()
            .unwrap_or_else(|_| Err(Failure::new("the thread that keeps history panicked")))
    }
}

impl Drop for Archiver {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A vertex that is followed.
struct FollowedVertex {
    subscription: Subscription,
    id: SeriesId,
}

/// Segment, registration time and topic of a vertex. A vertex that is registered again has another key.
type Key = (PathBuf, Timestamp, Topic);

struct Archive {
    host: Host,
    keeper: Keeper,
    facts: Facts,
    counts: Counts,
    followed: HashMap<Key, FollowedVertex>,
    /// The versions of the segments at the latest lookup of their vertices.
    versions: SegmentVersions,
    /// The time of that lookup. Vertices that were registered later are new to the history.
    looked_at: Option<Timestamp>,
    chores: Option<Receiver<Result<Report, Error>>>,
}

impl Archive {
    fn new(host: Host, keeper: Keeper, facts: Facts) -> Self {
        let counts = Counts { torn_bytes: keeper.torn_bytes(), ..Counts::default() };
        let (followed, versions) = (HashMap::new(), SegmentVersions::default());
        let (looked_at, chores) = (None, None);
        Self { host, keeper, facts, counts, followed, versions, looked_at, chores }
    }

    fn run(mut self, stop: &AtomicBool) -> Result<(), Failure> {
        let mut nap = SHORTEST_NAP;
        let begun = Instant::now();
        let [mut write_at, mut sync_at, mut chores_at, mut publish_at] = [begun; 4];
        while !stop.load(Ordering::Relaxed) {
            let fullest = self.collect();
            nap = match fullest {
                f if f > 0.25 => (nap / 2).max(SHORTEST_NAP),
                f if f < 0.06 => (nap * 2).min(LONGEST_NAP),
                _ => nap,
            };
            let is_due = |at: &mut Instant, every: Duration| {
                let is_due = *at <= Instant::now();
                if is_due {
                    *at = Instant::now() + every;
                }
                is_due
            };
            if is_due(&mut write_at, WRITE_EVERY) {
                self.look();
                let written =
                    self.keeper.commit(Level::Memory).and_then(|()| self.keeper.rotate(now()));
                self.count(written);
            }
            if is_due(&mut sync_at, SYNC_EVERY) {
                let synced = self.keeper.commit(Level::Disk);
                self.count(synced);
            }
            if is_due(&mut chores_at, CHORES_EVERY) {
                self.do_chores();
            }
            self.take_chores();
            if is_due(&mut publish_at, PUBLISH_EVERY) {
                self.facts.publish(&self.counts);
            }
            std::thread::park_timeout(nap);
        }
        self.collect();
        let ended = self.keeper.commit(Level::Disk);
        ended.map_err(|e| {
            let lost = match self.keeper.pending() {
                0 => "the last samples of history may not survive a loss of power".to_owned(),
                lost => format!("the last {lost} samples of history are lost"),
            };
            Failure::new(lost).because(&e)
        })
    }

    fn count(&mut self, result: Result<(), Error>) {
        self.counts.errors += u64::from(result.is_err());
    }

    /// Finds vertices that were added or removed.
    fn look(&mut self) {
        let looked_at = now();
        // If the directory cannot be listed now, the next lookup lists it.
        let _ = self.host.refresh();
        let Some(versions) = self.host.changes(&self.versions) else { return };
        let mut new: Vec<(Key, Vertex)> = Vec::new();
        let mut gone = std::mem::take(&mut self.followed);
        for vertex in self.host.segments().iter().flat_map(Segment::vertices) {
            let info = vertex.info();
            let path = vertex.segment().path().to_path_buf();
            let key = (path, info.registered_at, info.topic.clone());
            match gone.remove(&key) {
                Some(followed) => drop(self.followed.insert(key, followed)),
                None => new.push((key, vertex)),
            }
        }
        for mut followed in gone.into_values() {
            // The last samples are readable while the segment is mapped.
            take_in(&mut followed, &mut self.keeper, &mut self.counts);
            self.keeper.detach(followed.id);
        }
        let series = new.iter().map(|(_, vertex)| series(vertex)).collect();
        let before = self.looked_at;
        let is_known =
            |(_, since, _): &Key| before.is_none_or(|b| *since <= b || *since > looked_at);
        let known = new.iter().any(|(key, _)| is_known(key));
        match self.keeper.attach(series, known) {
            Ok(ids) => {
                self.versions = versions;
                self.looked_at = Some(looked_at);
                for ((key, vertex), id) in new.into_iter().zip(ids) {
                    let subscription = vertex.subscribe_from_oldest().quietly();
                    self.followed.insert(key, FollowedVertex { subscription, id });
                }
            }
            // The next lookup tries again.
            Err(_) => self.counts.errors += 1,
        }
    }

    /// Reads the new samples. Returns the largest share of a ring that was unread.
    fn collect(&mut self) -> f64 {
        let mut fullest = 0.0f64;
        for followed in self.followed.values_mut() {
            let new = take_in(followed, &mut self.keeper, &mut self.counts);
            let slots = followed.subscription.vertex().info().slots.max(1);
            fullest = fullest.max(new as f64 / f64::from(slots));
        }
        fullest
    }

    /// Seals, merges and removes files on another thread, unless it still runs.
    fn do_chores(&mut self) {
        if self.chores.is_some() {
            return;
        }
        let (chores, (sender, result)) = (self.keeper.chores(), channel());
        let work = move || drop(sender.send(chores.run(now())));
        match std::thread::Builder::new().name("sealer".to_owned()).spawn(work) {
            Ok(_) => self.chores = Some(result),
            Err(_) => self.counts.errors += 1,
        }
    }

    fn take_chores(&mut self) {
        let result = match self.chores.as_ref().map(Receiver::try_recv) {
            None | Some(Err(TryRecvError::Empty)) => return,
            Some(result) => result,
        };
        self.chores = None;
        match result {
            Ok(Ok(Report { parts, bytes, quarantined, damaged, errors, merges })) => {
                let counts = &mut self.counts;
                (counts.parts, counts.size_bytes, counts.quarantined) = (parts, bytes, quarantined);
                counts.errors += errors.len() as u64;
                counts.merges += merges;
                self.note(&damaged);
            }
            // The thread panicked, if it sent nothing. The next chores begin anew.
            Ok(Err(_)) | Err(_) => self.counts.errors += 1,
        }
    }

    /// Notes damaged files.
    fn note(&mut self, damaged: &[Damage]) {
        self.counts.damaged += damaged.len() as u64;
        if let Some(last) = damaged.last() {
            self.facts.publish_damage(last);
        }
    }
}

/// Reads the new samples of a vertex. Returns their number, lost samples included.
fn take_in(followed: &mut FollowedVertex, keeper: &mut Keeper, counts: &mut Counts) -> u64 {
    let mut new = 0;
    while let Ok(Some(delivery)) = followed.subscription.try_next() {
        match delivery {
            Delivery::Lost(lost) => {
                counts.lost += lost;
                new += lost;
            }
            Delivery::Sample(sample) => {
                new += 1;
                let mut pushed = keeper.push(followed.id, &sample);
                if pushed == PushOutcome::Refused && keeper.commit(Level::Memory).is_ok() {
                    pushed = keeper.push(followed.id, &sample);
                }
                match pushed {
                    PushOutcome::Accepted => counts.samples += 1,
                    PushOutcome::Duplicate => {}
                    PushOutcome::Refused => counts.refused += 1,
                }
            }
        }
    }
    new
}

fn series(vertex: &Vertex) -> Series {
    let info = vertex.info();
    Series {
        topic: info.topic.clone(),
        unit: info.unit,
        kind: info.kind,
        value_type: info.value_type,
        since: info.registered_at,
    }
}
