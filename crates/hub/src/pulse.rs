//! Wakes readers when a program on this machine publishes a value.
//!
//! One thread serves all waiting readers. It sleeps in shared memory, as any reader does. While no reader waits,
//! it sleeps elsewhere, because each publish makes a system call while a reader waits in shared memory.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread::{JoinHandle, park_timeout};
use std::time::{Duration, Instant};

use skopos_shm::Host;
use tokio::sync::watch;

/// Time between two searches for publishers that came or went.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Minimum time between two beats. A tick that publishes hundreds of facts gives one or two beats.
const SHORTEST: Duration = Duration::from_millis(1);

/// Notifies its followers of each value published on this machine, until it is dropped.
#[derive(Debug)]
pub struct Pulse {
    beat: Arc<watch::Sender<u64>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Pulse {
    /// Starts a pulse for the publishers that `host` finds.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn start(host: Host) -> io::Result<Self> {
        let (beat, stop) = (Arc::new(watch::Sender::new(0)), Arc::new(AtomicBool::new(false)));
        let run = {
            let (beat, stop) = (beat.clone(), stop.clone());
            move || run(host, &beat, &stop)
        };
        let thread = std::thread::Builder::new().name("pulse".to_owned()).spawn(run)?;
        Ok(Self { beat, stop, thread })
    }

    /// Returns a channel with a number that changes after each publish.
    pub fn follow(&self) -> watch::Receiver<u64> {
        let follower = self.beat.subscribe();
        self.thread.thread().unpark();
        follower
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        // The thread ends by itself within half a second.
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
    }
}

fn run(mut host: Host, beat: &watch::Sender<u64>, stop: &AtomicBool) {
    let mut looked_at = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if beat.receiver_count() == 0 {
            park_timeout(LOOK_EVERY);
            continue;
        }
        if looked_at.elapsed() >= LOOK_EVERY {
            looked_at = Instant::now();
            // After a failure the list stays unchanged until the next search.
            let _ = host.refresh();
        }
        // The beat follows after the waiting flags are set: readers see what was published before, and a
        // later publish ends the sleep.
        let mut has_beaten = false;
        host.wait(LOOK_EVERY, || {
            if !has_beaten {
                beat.send_modify(|n| *n = n.wrapping_add(1));
            }
            std::mem::replace(&mut has_beaten, true)
        });
        std::thread::sleep(SHORTEST);
    }
}

/// Waits until one of the channels has changed; for ever if all senders are gone.
pub async fn any_changed(news: &mut [watch::Receiver<u64>]) {
    let mut waiting: Vec<_> = news.iter_mut().map(|channel| Box::pin(channel.changed())).collect();
    std::future::poll_fn(|context| {
        let mut has_news = false;
        waiting.retain_mut(|change| match Pin::new(change).poll(context) {
            Poll::Ready(Ok(())) => {
                has_news = true;
                false
            }
            // Its sender is gone.
            Poll::Ready(Err(_)) => false,
            Poll::Pending => true,
        });
        if has_news { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
