//! Threads for polls that may never return: a mount that hangs, a device that does not answer, a
//! program that waits.
//!
//! The agent's own thread polls what reads kernel memory. A sensor that says
//! [`may_block`](skopos_sense::Sensor::may_block) is lent to a lane, with its facts, and comes back
//! with what it found. One lane serves all of them in turn as long as each comes back before the
//! next is due; another is started only when all are busy. A sensor that does not come back is
//! shown as such and costs its lane, nothing else.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use skopos_model::Timestamp;

use crate::agent::probe::{Polling, Probe, thread_time};
use crate::failure::Failure;

/// The most lanes: as many sensors as may block. A ninth that hangs waits for the others.
const MAX_LANES: usize = 8;

/// Stack of a lane: sensors read into buffers of their own, and a thread that hangs for ever should
/// not cost much.
const STACK_BYTES: usize = 256 << 10;

/// The lanes there are.
pub(crate) struct Lanes {
    idle: Vec<Lane>,
    /// By the number that came with the probe.
    busy: Vec<(usize, Lane)>,
    done: (Sender<Done>, Receiver<Done>),
    bell: Arc<OwnedFd>,
    has_news: bool,
}

struct Lane {
    jobs: Sender<Job>,
}

struct Job {
    number: usize,
    probe: Box<Probe>,
    times: (Timestamp, Duration),
}

/// A probe that came back.
pub(crate) struct Done {
    /// The number that it was lent with.
    pub(crate) number: usize,
    pub(crate) probe: Box<Probe>,
    pub(crate) polling: Polling,
}

impl Lanes {
    pub(crate) fn new() -> Result<Self, Failure> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|e| Failure::new("cannot make an event descriptor").because(&e))?;
        let (idle, busy) = (Vec::new(), Vec::new());
        Ok(Self { idle, busy, done: channel(), bell: Arc::new(bell), has_news: false })
    }

    /// Readable when a probe has come back.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Has `probe` polled in a lane. Gives it back if all are busy, to be tried again later.
    pub(crate) fn lend(
        &mut self,
        number: usize,
        probe: Box<Probe>,
        times: (Timestamp, Duration),
    ) -> Result<(), Box<Probe>> {
        let Some(lane) = self.idle.pop().or_else(|| self.start()) else { return Err(probe) };
        match lane.jobs.send(Job { number, probe, times }) {
            Ok(()) => {
                self.busy.push((number, lane));
                Ok(())
            }
            // The lane died of a panic; the next one starts a new lane.
            Err(refused) => Err(refused.0.probe),
        }
    }

    fn start(&self) -> Option<Lane> {
        if self.busy.len() >= MAX_LANES {
            return None;
        }
        let (jobs, queue) = channel::<Job>();
        let (done, bell) = (self.done.0.clone(), Arc::clone(&self.bell));
        let run = move || {
            for Job { number, mut probe, times } in queue {
                let polling = probe.poll(times, &mut thread_time());
                if done.send(Done { number, probe, polling }).is_err() {
                    return;
                }
                // It can only be full if nobody has emptied it for 2^64 polls.
                let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
            }
        };
        let builder = thread::Builder::new().name("skopos-lane".into()).stack_size(STACK_BYTES);
        builder.spawn(run).ok().map(|_| Lane { jobs })
    }

    /// The descriptor was readable.
    pub(crate) fn note_news(&mut self) {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.has_news = true;
    }

    /// True from [`note_news`](Self::note_news) until all that came back was taken.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news
    }

    /// How many are at work or hang.
    pub(crate) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// A probe that has come back, if one has.
    pub(crate) fn take(&mut self) -> Option<Done> {
        self.has_news = false;
        let done = self.done.1.try_recv().ok()?;
        Some(self.returned(done))
    }

    /// As [`take`](Self::take), waiting at most so long for it.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<Done> {
        if self.busy.is_empty() {
            return None;
        }
        let done = self.done.1.recv_timeout(patience).ok()?;
        Some(self.returned(done))
    }

    fn returned(&mut self, done: Done) -> Done {
        if let Some(at) = self.busy.iter().position(|(number, _)| *number == done.number) {
            let (_, lane) = self.busy.swap_remove(at);
            // One is enough while nothing hangs; the thread of another ends with its sender.
            if self.idle.is_empty() {
                self.idle.push(lane);
            }
        }
        done
    }
}
