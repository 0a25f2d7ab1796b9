//! Sends latest values to a store that takes Prometheus' remote write (version 1.0).
//!
//! One thread collects changed values at the configured interval (`changes`) and puts them into a bounded queue
//! (`queue`). A second thread sends them (`sender`), and retries while the store does not answer.
//!
//! # Invariants
//! - Names, labels and times are those of `/metrics`: the time of a value is the last poll of its source.
//! - Samples that are not sent are counted: those that the queue dropped, and those that the store refused.
//! - A slow or absent store costs memory up to the queue's bound, and does not delay other work.

mod changes;
mod encode;
mod nap;
mod queue;
mod sender;

pub(crate) use self::queue::Queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skopos_query::Source;

use self::changes::Changes;
use self::nap::NAP;
use self::sender::Sender;
use crate::config::RemoteWriteConfig;
use skopos_term::Failure;

/// Sends values until it is dropped.
pub(crate) struct RemoteWrite {
    stop: Arc<AtomicBool>,
    queue: Arc<Queue>,
}

impl RemoteWrite {
    /// Starts to send the values of `source`.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub(crate) fn start(
        config: &RemoteWriteConfig,
        source: Arc<dyn Source>,
    ) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let queue = Arc::new(Queue::default());
        let sender = Sender::new(config, queue.clone(), stop.clone());
        let collect = {
            let (stop, queue, every) = (stop.clone(), queue.clone(), config.every);
            let changes = Changes::new(config.topics.clone());
            move || collect(changes, &*source, &queue, every, &stop)
        };
        let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(run)
                .map_err(|e| Failure::new("no thread can be started").because(&e))
        };
        start("remote-write", Box::new(collect))?;
        start("remote-post", Box::new(move || sender.run()))?;
        Ok(Self { stop, queue })
    }

    /// Returns the queue, with its counts.
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl Drop for RemoteWrite {
    fn drop(&mut self) {
        // The threads end by themselves: the sender may be waiting for the store.
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn collect(
    mut changes: Changes,
    source: &dyn Source,
    queue: &Queue,
    every: Duration,
    stop: &AtomicBool,
) {
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if due <= now {
            queue.put(changes.collect(source, now));
            due = (due + every).max(now);
        }
        std::thread::sleep(NAP.min(due.saturating_duration_since(Instant::now())));
    }
}
