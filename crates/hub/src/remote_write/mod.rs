//! Sends latest values to a store that takes Prometheus' remote write (version 1.0).
//!
//! One thread looks, as often as is configured, at what has changed (`changes`) and puts it into a
//! bounded queue (`queue`); another one sends it (`post`), and again if the store is not there.
//!
//! # Invariants
//! - Names and labels are those of `/metrics`; so is the time of a value, that at which its source was
//!   last looked at.
//! - What is not sent is counted: what fell out of the queue, and what the store refused.
//! - A store that is away or slow costs memory up to the queue's bound, and nobody else any time.

mod changes;
mod encode;
mod queue;
mod post;

pub(crate) use self::queue::Queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skopos_query::Source;

use self::changes::Changes;
use self::post::Post;
use crate::config::RemoteWriteConfig;
use skopos_term::Failure;

/// How long a thread sleeps before it looks whether it should end.
const NAP: Duration = Duration::from_millis(100);

/// Sends until it is dropped.
pub(crate) struct RemoteWrite {
    stop: Arc<AtomicBool>,
    queue: Arc<Queue>,
}

impl RemoteWrite {
    /// Begins to send what `source` has.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        config: &RemoteWriteConfig,
        source: Arc<dyn Source>,
    ) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let queue = Arc::new(Queue::default());
        let post = Post::new(config, queue.clone(), stop.clone());
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
        start("remote-post", Box::new(move || post.run()))?;
        Ok(Self { stop, queue })
    }

    /// What waits, and what became of what waited.
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl Drop for RemoteWrite {
    fn drop(&mut self) {
        // The threads end by themselves; one may be waiting for the store.
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
    let mut look_at = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if look_at <= now {
            queue.put(changes.look(source, now));
            look_at = (look_at + every).max(now);
        }
        std::thread::sleep(NAP.min(look_at.saturating_duration_since(Instant::now())));
    }
}
