//! Threads that bring announced files up, in the order of their announcement.
//!
//! # Invariants
//! - One thread at a time goes through the announced files from the first on, until it has reserved room for one of them. So
//!   a file gets the room that becomes free before all files that were announced later.
//! - A file that waits for room ends the round. A file that waits for something else holds back no other file.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;

use crate::Error;
use crate::tiers::bring_up::{Begun, Prefetched, Reserved};
use crate::tiers::engine::Engine;

/// Most announcements that wait: a few steps of a large program. Further ones are counted and left out; their files are read
/// from the tier where they are.
pub const MAX_HINTS: usize = 4096;
/// Most threads: as many requests as a slow tier serves well at a time.
pub const MAX_WORKERS: usize = 32;
/// Longest wait between two rounds over the announced files, and until a worker notices its end. A deferred file is left
/// out of the rounds of this time, so that thousands of them cost little.
const WAIT: Duration = Duration::from_millis(100);

/// Brings files up in the background. Its threads end when it is dropped.
#[derive(Debug)]
pub struct Prefetcher {
    engine: Arc<Engine>,
    queue: Arc<Queue>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Held by the worker that chooses the next file, also while it waits. It alone takes files from the queue.
    turn: Mutex<()>,
    waiting: Mutex<Waiting>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The announced files whose copies are not begun, in the order of their announcements.
    files: VecDeque<Announced>,
    is_closed: bool,
    dropped: u64,
    failed: u64,
}

#[derive(Debug)]
struct Announced {
    name: Arc<str>,
    /// The time before which the file is not tried again.
    again: Option<Instant>,
}

impl Prefetcher {
    /// Starts `workers` threads, 1 to [`MAX_WORKERS`].
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(engine: Arc<Engine>, workers: usize) -> Result<Self, Error> {
        let mut prefetcher = Self { engine, queue: Arc::default(), workers: Vec::new() };
        for _ in 0..workers.clamp(1, MAX_WORKERS) {
            let (engine, queue) = (prefetcher.engine.clone(), prefetcher.queue.clone());
            let builder = thread::Builder::new().name("prefetch".to_owned());
            let worker = builder.spawn(move || queue.work(&engine)).map_err(Error::Thread)?;
            prefetcher.workers.push(worker);
        }
        Ok(prefetcher)
    }

    /// Announces one read of a file; a file that is read again is announced again. Returns false if there is no such file, or if
    /// too many announcements wait.
    pub fn announce(&self, name: &str) -> bool {
        self.queue.announce(&self.engine, name)
    }

    /// Returns the number of announcements that were left out, because too many waited.
    pub fn dropped(&self) -> u64 {
        unpoisoned(self.queue.waiting.lock()).dropped
    }

    /// Returns the number of files that could not be brought up, because a tier failed or the file was removed.
    pub fn failed(&self) -> u64 {
        unpoisoned(self.queue.waiting.lock()).failed
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        unpoisoned(self.queue.waiting.lock()).is_closed = true;
        self.queue.ready.notify_all();
        for worker in self.workers.drain(..) {
            // A panic was printed when it happened.
            let _ = worker.join();
        }
    }
}

impl Queue {
    fn announce(&self, engine: &Engine, name: &str) -> bool {
        let mut waiting = unpoisoned(self.waiting.lock());
        if waiting.files.len() >= MAX_HINTS {
            waiting.dropped += 1;
            return false;
        }
        // A file that a thread does not bring up must not be kept for its reader, so the queue is asked first.
        if !engine.announce(name) {
            return false;
        }
        waiting.files.push_back(Announced { name: name.into(), again: None });
        drop(waiting);
        self.ready.notify_one();
        true
    }

    fn work(&self, engine: &Engine) {
        while let Some(copy) = self.next(engine) {
            if engine.bring_up(copy).is_err() {
                self.count_failure();
            }
        }
    }

    /// Waits for the next copy, for which room is reserved then; `None` at the end.
    fn next(&self, engine: &Engine) -> Option<Reserved> {
        let _turn = unpoisoned(self.turn.lock());
        while self.wait_for_files() {
            let epoch = engine.epoch();
            if let Some(copy) = self.choose(engine) {
                return Some(copy);
            }
            engine.wait_for_change(epoch, WAIT);
        }
        None
    }

    /// Waits until a file is announced. Returns false at the end.
    fn wait_for_files(&self) -> bool {
        let waiting = unpoisoned(self.waiting.lock());
        let is_idle = |waiting: &mut Waiting| waiting.files.is_empty() && !waiting.is_closed;
        !unpoisoned(self.ready.wait_while(waiting, is_idle)).is_closed
    }

    /// Goes through the announced files in their order. Returns the first copy for which there is room, which is reserved
    /// then; `None` if no file can be brought up now.
    fn choose(&self, engine: &Engine) -> Option<Reserved> {
        let mut from = 0;
        while let Some((at, name)) = self.due(from) {
            from = at;
            // The reader was faster.
            if !engine.is_awaited(&name) {
                self.remove(at);
                continue;
            }
            match engine.begin_prefetch(&name) {
                Ok(Begun::Reserved(copy)) => {
                    self.remove(at);
                    return Some(copy);
                }
                // The room that becomes free is for this file.
                Ok(Begun::Ended(Prefetched::NoRoom)) => return None,
                Ok(Begun::Ended(Prefetched::Deferred)) => {
                    unpoisoned(self.waiting.lock()).files[at].again = Some(Instant::now() + WAIT);
                    from = at + 1;
                }
                Ok(Begun::Ended(Prefetched::Copied | Prefetched::Present)) => self.remove(at),
                Err(_) => {
                    self.remove(at);
                    self.count_failure();
                }
            }
        }
        None
    }

    /// Returns the first file at the place `from` or behind it that is to be tried now, with its place.
    fn due(&self, from: usize) -> Option<(usize, Arc<str>)> {
        let (waiting, now) = (unpoisoned(self.waiting.lock()), Instant::now());
        let is_due = |file: &Announced| file.again.is_none_or(|again| again <= now);
        let mut files = waiting.files.iter().enumerate().skip(from);
        files.find(|(_, file)| is_due(file)).map(|(at, file)| (at, file.name.clone()))
    }

    fn remove(&self, at: usize) {
        unpoisoned(self.waiting.lock()).files.remove(at);
    }

    /// Counts a file that could not be brought up. The read of the file reports the error to a caller.
    fn count_failure(&self) {
        unpoisoned(self.waiting.lock()).failed += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::place::{Informed, Policy, Request, RoundRobin, Tier};
    use crate::tiers::{Declared, Settings, TierSpec};

    const TIERS: [&str; 3] = ["memory", "fast", "slow"];

    /// A round robin for which the second tier fails whenever a file is to be read from it.
    struct Away(RoundRobin);

    impl Policy for Away {
        fn place(&mut self, request: Request, tiers: &[Tier]) -> Option<usize> {
            self.0.place(request, tiers)
        }

        fn flush(&mut self, bytes: u64, from: usize, tiers: &[Tier]) -> Option<usize> {
            self.0.flush(bytes, from, tiers)
        }

        fn prefetch(&mut self, bytes: u64, from: usize, tiers: &[Tier]) -> Option<usize> {
            self.0.prefetch(bytes, from, tiers)
        }

        fn replicate(
            &mut self,
            request: Request,
            sets: &[Vec<usize>],
            tiers: &[Tier],
        ) -> Option<usize> {
            self.0.replicate(request, sets, tiers)
        }

        fn read(&mut self, bytes: u64, holders: &[usize], tiers: &[Tier]) -> Option<usize> {
            self.0.read(bytes, holders, tiers).filter(|at| *at != 1)
        }
    }

    /// Makes an engine on three tiers, which have these files: tier, name and bytes.
    fn engine(
        root: &Path,
        capacities: [u64; 3],
        policy: Box<dyn Policy>,
        files: &[(&str, &str, usize)],
    ) -> Engine {
        for (tier, name, bytes) in files {
            let home = root.join(tier).join("home");
            fs::create_dir_all(&home).expect("a folder");
            fs::write(home.join(name), vec![7_u8; *bytes]).expect("written");
        }
        let spec = |(name, capacity)| TierSpec::new(name, root.join(name), capacity);
        let tiers = TIERS.into_iter().zip(capacities).map(spec).collect();
        Engine::open(Settings { tiers }, policy, Box::<Declared>::default()).expect("an engine")
    }

    /// Has the next file brought up. Returns false if there is none.
    fn bring_up(queue: &Queue, engine: &Engine) -> bool {
        let copy = queue.choose(engine);
        copy.map(|copy| engine.bring_up(copy).expect("copied")).is_some()
    }

    fn is_up(engine: &Engine, name: &str) -> bool {
        engine.holders(name).len() > 1
    }

    #[test]
    fn room_is_for_the_file_that_was_announced_first() {
        let dir = tempfile::tempdir().expect("a folder");
        let files = [("slow", "a", 900), ("slow", "b", 900), ("slow", "c", 50)];
        // The fast tier is too small for all of them.
        let policy = Box::new(Informed::new());
        let engine = engine(dir.path(), [1000, 1, 100_000], policy, &files);
        let queue = Queue::default();
        assert!(["a", "b", "c"].into_iter().all(|name| queue.announce(&engine, name)));
        let first = queue.choose(&engine).expect("room");
        assert!(queue.choose(&engine).is_none(), "the first copy is not complete yet");
        engine.bring_up(first).expect("copied");
        assert!(queue.choose(&engine).is_none() && is_up(&engine, "a"));
        engine.read("a").expect("readable");
        assert!(bring_up(&queue, &engine) && is_up(&engine, "b") && !is_up(&engine, "c"));
        assert!(bring_up(&queue, &engine) && is_up(&engine, "c"));
        assert!(unpoisoned(queue.waiting.lock()).files.is_empty());
    }

    /// Announces `stuck`, which cannot be brought up, and then `small`, which can.
    fn check(engine: &Engine) {
        let queue = Queue::default();
        assert!(queue.announce(engine, "stuck") && queue.announce(engine, "small"));
        assert!(bring_up(&queue, engine) && is_up(engine, "small"));
        assert!(!bring_up(&queue, engine), "`stuck` stays");
        let waiting = unpoisoned(queue.waiting.lock());
        assert_eq!((waiting.files.len(), waiting.failed), (1, 0));
        drop(waiting);
        // A worker that waits for a change is not woken by its own tries.
        let epoch = engine.epoch();
        assert_eq!(engine.prefetch("stuck").expect("there"), Prefetched::Deferred);
        assert_eq!(engine.epoch(), epoch);
    }

    #[test]
    fn a_file_larger_than_all_faster_tiers_holds_back_no_other() {
        let dir = tempfile::tempdir().expect("a folder");
        let files = [("slow", "stuck", 3000), ("slow", "small", 100)];
        let policy = Box::new(RoundRobin::new());
        check(&engine(dir.path(), [1000, 2000, 100_000], policy, &files));
    }

    #[test]
    fn a_file_whose_tier_fails_holds_back_no_other() {
        let dir = tempfile::tempdir().expect("a folder");
        let files = [("fast", "stuck", 100), ("slow", "small", 100)];
        let policy = Box::new(Away(RoundRobin::new()));
        check(&engine(dir.path(), [1000, 2000, 100_000], policy, &files));
    }

    #[test]
    fn a_file_without_room_beside_files_that_stay_holds_back_no_other() {
        let dir = tempfile::tempdir().expect("a folder");
        let files = [
            ("memory", "m", 500),
            ("fast", "f", 500),
            ("slow", "stuck", 900),
            ("slow", "small", 100),
        ];
        let policy = Box::new(RoundRobin::new());
        check(&engine(dir.path(), [1000, 1000, 100_000], policy, &files));
    }
}
