//! Wakes whoever waits for something to be published on this machine.
//!
//! One thread for all of them, which sleeps in shared memory like any reader, and not at all there
//! while nobody waits: a reader that wants to be woken costs a publisher a system call.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, park_timeout};
use std::time::{Duration, Instant};

use skopos_shm::Host;
use tokio::sync::watch;

/// How often to look for publishers that came or went.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time between two beats: a tick that publishes hundreds of facts is a beat or two.
const SHORTEST: Duration = Duration::from_millis(1);

/// Beats whenever anything is published, until it is dropped.
#[derive(Debug)]
pub struct Pulse {
    beat: Arc<watch::Sender<u64>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Pulse {
    /// Of the publishers that `host` finds.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(host: Host) -> io::Result<Self> {
        let (beat, stop) = (Arc::new(watch::Sender::new(0)), Arc::new(AtomicBool::new(false)));
        let run = {
            let (beat, stop) = (beat.clone(), stop.clone());
            move || run(host, &beat, &stop)
        };
        let thread = std::thread::Builder::new().name("pulse".to_owned()).spawn(run)?;
        Ok(Self { beat, stop, thread })
    }

    /// A number that is another one after anything was published.
    pub fn follow(&self) -> watch::Receiver<u64> {
        let follower = self.beat.subscribe();
        self.thread.thread().unpark();
        follower
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        // It ends by itself, within half a second.
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
            // What cannot be listed now stays as it was.
            let _ = host.refresh();
        }
        // The beat comes when the flags are up: what was published before is there for whoever looks
        // now, and what is published later ends the sleep.
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
