//! Subscriptions: each sample once and in order, and the number of samples that were missed.

use std::time::{Duration, Instant};

use skopos_model::{Sample, Timestamp};

use crate::error::Error;
use crate::ring::SlotState;
use crate::segment::Segment;
use crate::sync::AtomicU32;
use crate::sys::{Futex, Naps};
use crate::vertex::Vertex;
use crate::wait::Bell;

/// A cursor on one vertex. A subscription costs the writer nothing.
#[derive(Clone, Debug)]
pub struct Subscription {
    vertex: Vertex,
    next: u64,
    is_quiet: bool,
}

/// An event of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// The next sample.
    Sample(Sample),
    /// The reader was lapped: this many samples were overwritten before it read them. They are in the
    /// history on disk, if the publisher keeps one.
    Lost(u64),
}

impl Subscription {
    fn new(vertex: Vertex, next: u64) -> Self {
        Self { vertex, next, is_quiet: false }
    }

    /// Returns the same subscription, but it does not tell the publisher that a reader follows the vertex:
    /// for readers that take in all vertices.
    #[must_use]
    pub fn quietly(self) -> Self {
        Self { is_quiet: true, ..self }
    }

    #[inline]
    fn announce(&self) {
        if !self.is_quiet {
            self.vertex.follow();
        }
    }

    /// Returns the vertex of this subscription.
    #[inline]
    pub fn vertex(&self) -> &Vertex {
        &self.vertex
    }

    /// Returns true if [`try_next`](Self::try_next) would return an event. A vertex that is gone has none;
    /// [`Vertex::is_gone`] tells.
    #[inline]
    pub fn has_next(&self) -> bool {
        self.announce();
        self.vertex.has_news(self.next)
    }

    /// Returns the time of the last poll of the source since the sample that was taken last; `None` if the
    /// vertex has a newer sample, which that poll may have yielded, or if it is gone.
    #[inline]
    pub fn checked_at(&self) -> Option<Timestamp> {
        // The time is read first: a sample that existed at that time is then seen.
        let checked_at = self.vertex.raw().head.checked().time;
        (!self.is_due()).then(|| Timestamp::from_nanos(checked_at))
    }

    /// Returns true if [`try_next`](Self::try_next) would return an event or an error.
    #[inline]
    fn is_due(&self) -> bool {
        self.vertex.is_due(self.next)
    }

    /// Returns the next event, if there is one. Never waits.
    ///
    /// # Errors
    /// [`Error::Gone`] once the vertex is unregistered; [`Error::Damaged`].
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Delivery>, Error> {
        self.announce();
        if !self.is_due() {
            return Ok(None);
        }
        match self.vertex.read(self.next)? {
            SlotState::Whole(sample) => {
                self.next += 1;
                Ok(Some(Delivery::Sample(sample)))
            }
            _ => {
                // At least this sample is lost, even if its ticket is still within reach of the ring:
                // its slot or its bytes are being overwritten right now.
                let resume = self.vertex.oldest().max(self.next + 1);
                let lost = resume - self.next;
                self.next = resume;
                Ok(Some(Delivery::Lost(lost)))
            }
        }
    }

    /// Waits at most `timeout` for the next event; `None` if nothing came. Sleeps in the kernel, and the
    /// publish itself wakes it.
    ///
    /// # Errors
    /// [`Error::Gone`] once the vertex is unregistered, or after the last sample of a publisher that has
    /// ended; [`Error::Damaged`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Delivery>, Error> {
        let started = Instant::now();
        let (mut looked, mut naps) = (started, Naps::new());
        loop {
            if let Some(delivery) = self.try_next()? {
                return Ok(Some(delivery));
            }
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() || looked.elapsed() >= LONGEST_SLEEP {
                looked = Instant::now();
                // A publisher that was killed wakes no subscriber. What it stored before is delivered first.
                if !self.vertex.segment().is_alive() && !self.is_due() {
                    return Err(Error::Gone(self.vertex.topic().clone()));
                }
            }
            if left.is_zero() {
                return Ok(None);
            }
            let (segment, index) = (self.vertex.segment(), Some(self.vertex.index()));
            let epoch = &self.vertex.raw().head.epoch;
            sleep_once(segment, (index, epoch), (left.min(LONGEST_SLEEP), &mut naps), || {
                self.is_due()
            });
        }
    }
}

impl Vertex {
    /// Subscribes from now on: the first sample delivered is the next one that is stored.
    pub fn subscribe(&self) -> Subscription {
        Subscription::new(self.clone(), self.count())
    }

    /// Subscribes from the latest sample on, which is delivered first.
    pub fn subscribe_with_latest(&self) -> Subscription {
        Subscription::new(self.clone(), self.count().saturating_sub(1))
    }

    /// Subscribes from the oldest sample that is still in memory.
    pub fn subscribe_from_oldest(&self) -> Subscription {
        Subscription::new(self.clone(), self.oldest())
    }
}

/// Sleeps until anything is published, registered or unregistered in the segment. Returns true as soon as
/// `ready` does, and false after the timeout or early without a reason.
pub(crate) fn wait_for_any(
    segment: &Segment,
    (timeout, naps): (Duration, &mut Naps),
    ready: impl FnMut() -> bool,
) -> bool {
    sleep_once(segment, (None, &segment.live().epoch), (timeout, naps), ready)
}

/// The longest single sleep. A process that may raise a flag can lower it as well, and then no wake-up
/// comes; so every sleeper wakes ten times a second.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

fn sleep_once(
    segment: &Segment,
    (index, epoch): (Option<u32>, &AtomicU32),
    (timeout, naps): (Duration, &mut Naps),
    mut ready: impl FnMut() -> bool,
) -> bool {
    match segment.flag(index) {
        Some(flag) => {
            let futex = Futex { timeout };
            Bell { flag, epoch }.wait(
                &futex,
                || Segment::announce(std::slice::from_ref(segment)),
                ready,
            )
        }
        None => {
            naps.take(timeout);
            ready()
        }
    }
}
