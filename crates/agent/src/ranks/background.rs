//! A thread that writes texts, so that a file system that hangs does not hold up the agent.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;

/// Most bytes that wait: ten thousand outcomes among three candidates, or a few among a thousand. Further ones are left out.
pub(super) const MAX_QUEUED_BYTES: u64 = 4 << 20;

/// Time that the end of the agent waits for the texts of a profile. A disk that works writes them in less, but those of all
/// profiles may be on one disk.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that the end of the agent waits at most: a service manager waits for ninety seconds.
const MAX_END_TIMEOUT: Duration = Duration::from_secs(5);

/// Stack of the thread: texts are on the heap, and a thread that hangs for ever should be cheap.
const STACK_BYTES: usize = 256 << 10;

/// Returns the time that the end of the agent waits for the texts of so many profiles together.
pub(super) fn end_timeout(profiles: usize) -> Duration {
    let profiles = u32::try_from(profiles).unwrap_or(u32::MAX);
    END_TIMEOUT.saturating_mul(profiles).min(MAX_END_TIMEOUT)
}

/// A queue of texts with the thread that writes them. The thread ends with the queue.
pub(super) struct Background {
    /// `None` at the end.
    texts: Option<Sender<String>>,
    shared: Arc<Shared>,
    ended: Receiver<()>,
}

#[derive(Default)]
struct Shared {
    /// Texts that are not written yet, and their bytes.
    queued: AtomicU64,
    queued_bytes: AtomicU64,
    written: AtomicU64,
    left_out: AtomicU64,
    /// The reason why the last text is not written.
    error: Mutex<Option<String>>,
}

impl Background {
    /// Starts a thread that calls `write` for each text.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(super) fn start(
        mut write: impl FnMut(&str) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (texts, queue) = channel::<String>();
        let (alive, ended) = channel::<()>();
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let run = move || {
            for text in queue {
                of_thread.take(write(&text), text.len() as u64);
            }
            drop(alive);
        };
        let builder = thread::Builder::new().name("skopos-ranks".into()).stack_size(STACK_BYTES);
        builder.spawn(run)?;
        Ok(Self { texts: Some(texts), shared, ended })
    }

    /// Has a text written. A text for which there is no room is left out and counted.
    pub(super) fn push(&self, text: String) {
        let (shared, bytes) = (&self.shared, text.len() as u64);
        let queued = shared.queued_bytes.load(Ordering::Relaxed);
        if queued + bytes > MAX_QUEUED_BYTES {
            shared.leave_out(format!("{queued} bytes wait to be written"));
            return;
        }
        shared.queued.fetch_add(1, Ordering::Relaxed);
        shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let sent = self.texts.as_ref().is_some_and(|texts| texts.send(text).is_ok());
        if !sent {
            shared.leave(bytes);
            shared.leave_out("the thread that writes has ended".to_owned());
        }
    }

    /// Returns the number of texts that were written.
    pub(super) fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Returns the number of texts that could not be written.
    pub(super) fn left_out(&self) -> u64 {
        self.shared.left_out.load(Ordering::Relaxed)
    }

    /// Returns the reason why the last text is not written.
    pub(super) fn error(&self) -> Option<String> {
        unpoisoned(self.shared.error.lock()).clone()
    }

    /// Closes the queue. The thread writes what waits, and ends.
    pub(super) fn close(&mut self) {
        self.texts = None;
    }

    /// Waits for the end of a queue that is closed, until a point in time. Returns the number of texts that are not written then.
    pub(super) fn end(&self, until: Instant) -> u64 {
        // The thread has written all, or it hangs and ends with the process.
        let _ = self.ended.recv_timeout(until.saturating_duration_since(Instant::now()));
        self.shared.queued.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn take(&self, written: io::Result<()>, bytes: u64) {
        match written {
            Ok(()) => {
                *unpoisoned(self.error.lock()) = None;
                self.written.fetch_add(1, Ordering::Relaxed);
            }
            Err(e) => self.leave_out(e.to_string()),
        }
        self.leave(bytes);
    }

    /// Notes that a text left the queue.
    fn leave(&self, bytes: u64) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn leave_out(&self, reason: String) {
        *unpoisoned(self.error.lock()) = Some(reason);
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time that only ends a hang.
    const PATIENCE: Duration = Duration::from_secs(180);

    fn wait_until(is_done: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_done() {
            assert!(begun.elapsed() < PATIENCE, "it does not happen");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn profiles_that_share_a_disk_have_more_time_at_the_end_within_a_bound() {
        let seconds = [0, 1, 3, 16].map(|profiles| end_timeout(profiles).as_secs());
        assert_eq!(seconds, [0, 1, 3, 5]);
    }

    #[test]
    fn texts_beyond_the_queue_are_left_out_and_counted_while_the_file_hangs() {
        let (open, gate) = channel::<()>();
        let write = move |_: &str| gate.recv().map_err(io::Error::other);
        let background = Background::start(write).expect("a thread");
        let quarter = "x".repeat(MAX_QUEUED_BYTES as usize / 4);
        for _ in 0..6 {
            background.push(quarter.clone());
        }
        assert_eq!((background.written(), background.left_out()), (0, 2));
        assert!(background.error().is_some_and(|e| e.contains("wait to be written")));
        for _ in 0..4 {
            open.send(()).expect("it waits");
        }
        wait_until(|| background.written() == 4);
        assert_eq!(background.error(), None);
        drop(open);
        background.push("late".to_owned());
        wait_until(|| background.left_out() == 3);
        assert!(background.error().is_some());
    }

    #[test]
    fn the_end_writes_what_waits_and_does_not_wait_for_a_file_that_hangs() {
        let written = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&written);
        let write = move |_: &str| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let mut background = Background::start(write).expect("a thread");
        (0..100).for_each(|_| background.push("a line\n".to_owned()));
        background.close();
        assert_eq!(background.end(Instant::now() + PATIENCE), 0);
        assert_eq!((background.written(), written.load(Ordering::Relaxed)), (100, 100));

        let (open, gate) = channel::<()>();
        let write = move |_: &str| gate.recv().map_err(io::Error::other);
        let mut background = Background::start(write).expect("a thread");
        (0..3).for_each(|_| background.push("a line\n".to_owned()));
        background.close();
        assert_eq!(background.end(Instant::now()), 3, "the thread hangs with the first one");
        background.push("late\n".to_owned());
        assert_eq!(background.left_out(), 1);
        (0..3).for_each(|_| open.send(()).expect("it waits"));
        assert_eq!(background.end(Instant::now() + PATIENCE), 0);
    }
}
