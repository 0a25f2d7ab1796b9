//! Following vertices: each sample once and in order, and the number of those that were missed.

use std::time::{Duration, Instant};

use skopos_model::{Sample, Timestamp};

use crate::error::Error;
use crate::ring::SlotState;
use crate::segment::Segment;
use crate::sync::AtomicU32;
use crate::sys::Futex;
use crate::vertex::Vertex;
use crate::wait::Bell;

/// A cursor on one vertex. Costs the writer nothing.
#[derive(Clone, Debug)]
pub struct Subscription {
    vertex: Vertex,
    next: u64,
    is_quiet: bool,
}

/// What a subscription delivers.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// The next sample.
    Sample(Sample),
    /// The reader was lapped: this many samples were overwritten before it came. They are in the
    /// history on disk, if the publisher keeps one.
    Lost(u64),
}

impl Subscription {
    fn new(vertex: Vertex, next: u64) -> Self {
        Self { vertex, next, is_quiet: false }
    }

    /// Without telling the publisher that somebody follows closely: for who takes in everything.
    #[must_use]
    pub fn quietly(self) -> Self {
        Self { is_quiet: true, ..self }
    }

    #[inline]
    fn tell(&self) {
        if !self.is_quiet {
            self.vertex.follow();
        }
    }

    /// The vertex that is followed.
    #[inline]
    pub fn vertex(&self) -> &Vertex {
        &self.vertex
    }

    /// True if [`try_next`](Self::try_next) has something to say.
    #[inline]
    pub fn has_next(&self) -> bool {
        self.tell();
        self.vertex.has_news(self.next)
    }

    /// When the source of the sample that was taken last was looked at since: `None` if there is a newer
    /// sample, which that may have been for.
    #[inline]
    pub fn checked_at(&self) -> Option<Timestamp> {
        // The time first: a sample that was there by then is seen after it.
        let checked_at = self.vertex.raw().checked_at();
        (!self.vertex.has_news(self.next)).then(|| Timestamp::from_nanos(checked_at))
    }

    /// What came next, if anything did. Never waits.
    ///
    /// # Errors
    /// [`Error::Gone`] once the vertex is unregistered.
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Delivery>, Error> {
        self.tell();
        if !self.vertex.has_news(self.next) {
            return Ok(None);
        }
        match self.vertex.read(self.next) {
            SlotState::Whole(sample) => {
                self.next += 1;
                Ok(Some(Delivery::Sample(sample)))
            }
            SlotState::Absent => Ok(None),
            SlotState::Gone => Err(Error::Gone(self.vertex.topic().clone())),
            SlotState::Lapped => {
                // At least this one is lost, even if the ring has it in its reach still: its slot
                // or its bytes are being overwritten right now.
                let resume = self.vertex.oldest().max(self.next + 1);
                let lost = resume - self.next;
                self.next = resume;
                Ok(Some(Delivery::Lost(lost)))
            }
        }
    }

    /// What comes next, waiting for it at most `timeout`; `None` if nothing came. Sleeps in the
    /// kernel, woken by the publish itself.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Delivery>, Error> {
        let started = Instant::now();
        loop {
            if let Some(delivery) = self.try_next()? {
                return Ok(Some(delivery));
            }
            let Some(left) = timeout.checked_sub(started.elapsed()).filter(|d| !d.is_zero()) else {
                return Ok(None);
            };
            let vertex = &self.vertex;
            let flag = vertex.segment().flag(Some(vertex.index()));
            sleep_once(flag, &vertex.raw().head.epoch, left, || vertex.has_news(self.next));
        }
    }
}

impl Vertex {
    /// Follows the vertex from now on: the next sample delivered is the next one stored.
    pub fn subscribe(&self) -> Subscription {
        Subscription::new(self.clone(), self.count())
    }

    /// Follows the vertex from its latest sample on, which is delivered first.
    pub fn subscribe_with_latest(&self) -> Subscription {
        Subscription::new(self.clone(), self.count().saturating_sub(1))
    }

    /// Follows the vertex from the oldest sample that is still in memory.
    pub fn subscribe_from_oldest(&self) -> Subscription {
        Subscription::new(self.clone(), self.oldest())
    }
}

/// True as soon as `ready` is, or false after a time-out or for no reason at all: sleeps until
/// anything is published, registered or unregistered in the segment.
pub(crate) fn wait_for_any(
    segment: &Segment,
    timeout: Duration,
    ready: impl FnMut() -> bool,
) -> bool {
    sleep_once(segment.flag(None), &segment.live().epoch, timeout, ready)
}

/// How long to sleep where nobody can wake this process: a thousandth of the usual interval.
const NAP: Duration = Duration::from_millis(1);

/// The longest sleep in one go. Whoever may raise a flag can lower it as well, and then no wake-up
/// comes; so every sleeper looks around ten times a second.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

fn sleep_once(
    flag: Option<&AtomicU32>,
    epoch: &AtomicU32,
    timeout: Duration,
    mut ready: impl FnMut() -> bool,
) -> bool {
    match flag {
        Some(flag) => {
            Bell { flag, epoch }.wait(&Futex { timeout: timeout.min(LONGEST_SLEEP) }, ready)
        }
        None => {
            std::thread::sleep(timeout.min(NAP));
            ready()
        }
    }
}
