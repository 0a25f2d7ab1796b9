//! Threads that bring announced files up, in the order of their announcement.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use skopos_model::unpoisoned;

use crate::Error;
use crate::tiers::engine::Engine;
use crate::tiers::read::Prefetched;

/// Most announcements that wait: a few steps of a large program. Further ones are counted and left out; their files are read
/// from the tier where they are.
pub const MAX_HINTS: usize = 4096;
/// Most threads: as many requests as a slow tier serves well at a time.
pub const MAX_WORKERS: usize = 32;
/// Longest wait between two tries of a deferred file, and until a worker notices its end.
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
    waiting: Mutex<Waiting>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    names: VecDeque<String>,
    /// Number of files that a worker has taken.
    taken: u64,
    /// The files that workers could not bring up yet, as numbers in the order of announcements.
    deferred: BTreeSet<u64>,
    is_closed: bool,
    dropped: u64,
    failed: u64,
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

    /// Announces the read of a file. Returns false if there is no such file, or if too many announcements wait.
    pub fn announce(&self, name: &str) -> bool {
        let mut waiting = unpoisoned(self.queue.waiting.lock());
        if waiting.names.len() >= MAX_HINTS {
            waiting.dropped += 1;
            return false;
        }
        // A file that a thread does not bring up must not be kept for its reader, so the queue is asked first.
        if !self.engine.announce(name) {
            return false;
        }
        waiting.names.push_back(name.to_owned());
        drop(waiting);
        self.queue.ready.notify_one();
        true
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
    fn work(&self, engine: &Engine) {
        while let Some((number, name)) = self.next() {
            loop {
                let epoch = engine.epoch();
                // The reader was faster.
                if !engine.is_awaited(&name) || self.is_closed() {
                    break;
                }
                // The room that becomes free is for the file that is read first.
                if self.is_behind(number) {
                    engine.wait_for_change(epoch, WAIT);
                    continue;
                }
                match engine.prefetch(&name) {
                    Ok(Prefetched::Deferred) => {
                        unpoisoned(self.waiting.lock()).deferred.insert(number);
                        engine.wait_for_change(epoch, WAIT);
                    }
                    Ok(Prefetched::Copied | Prefetched::Present) => break,
                    Err(_) => {
                        // The read of the file reports the error to a caller.
                        unpoisoned(self.waiting.lock()).failed += 1;
                        break;
                    }
                }
            }
            unpoisoned(self.waiting.lock()).deferred.remove(&number);
        }
    }

    /// Returns true if a file that was announced before this one waits for room.
    fn is_behind(&self, number: u64) -> bool {
        let waiting = unpoisoned(self.waiting.lock());
        waiting.deferred.first().is_some_and(|first| *first < number)
    }

    /// Waits for the next name, and returns it with its number; `None` at the end.
    fn next(&self) -> Option<(u64, String)> {
        let mut waiting = unpoisoned(self.waiting.lock());
        loop {
            if waiting.is_closed {
                return None;
            }
            match waiting.names.pop_front() {
                Some(name) => {
                    waiting.taken += 1;
                    return Some((waiting.taken, name));
                }
                None => waiting = unpoisoned(self.ready.wait(waiting)),
            }
        }
    }

    fn is_closed(&self) -> bool {
        unpoisoned(self.waiting.lock()).is_closed
    }
}
