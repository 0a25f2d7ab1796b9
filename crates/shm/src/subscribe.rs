//! Following vertices: each sample once and in order, and the number of those that were missed.

use std::time::{Duration, Instant};

use skopos_model::Sample;

use crate::Error;
use crate::ring::Found;
use crate::segment::Segment;
use crate::sys::Futex;
use crate::vertex::Vertex;
use crate::wait::Bell;

/// A cursor on one vertex. Costs the writer nothing.
#[derive(Clone, Debug)]
pub struct Subscription {
    vertex: Vertex,
    next: u64,
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
    pub(crate) fn new(vertex: Vertex, next: u64) -> Self {
        Self { vertex, next }
    }

    /// The vertex that is followed.
    pub fn vertex(&self) -> &Vertex {
        &self.vertex
    }

    /// True if [`try_next`](Self::try_next) has something to say.
    pub fn has_next(&self) -> bool {
        !matches!(self.vertex.read(self.next), Found::Absent)
    }

    /// What came next, if anything did. Never waits.
    ///
    /// # Errors
    /// [`Error::Gone`] once the vertex is unregistered.
    pub fn try_next(&mut self) -> Result<Option<Delivery>, Error> {
        match self.vertex.read(self.next) {
            Found::Whole(sample) => {
                self.next += 1;
                Ok(Some(Delivery::Sample(sample)))
            }
            Found::Absent => Ok(None),
            Found::Gone => Err(Error::Gone(self.vertex.topic().clone())),
            Found::Lapped => {
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
    /// [`Error::Gone`]; [`Error::NoWake`] if this process may not write the wake file.
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
            let flag = vertex.segment().wake_flag(Some(vertex.index()))?;
            Bell { flag, epoch: &vertex.raw().head.epoch }.wait(&Futex { timeout: left }, || {
                !matches!(vertex.read(self.next), Found::Absent)
            });
        }
    }
}

/// True as soon as `ready` is, or a time-out passes: sleeps until anything at all is published,
/// registered or unregistered in the segment.
///
/// # Errors
/// [`Error::NoWake`] if this process may not write the wake file.
pub(crate) fn wait_for_any(
    segment: &Segment,
    timeout: Duration,
    ready: impl FnMut() -> bool,
) -> Result<bool, Error> {
    let bell = Bell { flag: segment.wake_flag(None)?, epoch: &segment.live().epoch };
    Ok(bell.wait(&Futex { timeout }, ready))
}
