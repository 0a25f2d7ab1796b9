//! A sensor with its facts in the segment, which any thread can poll.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use skopos_model::Timestamp;
use skopos_sense::{Sensor, Skip, Tick};
use skopos_shm::{Group, Interest, Publisher, VertexWriter};

use crate::sink::{Counts, SegmentSink, Yielded};
use skopos_term::Failure;

/// A sensor, its group of vertices and the values of its latest poll.
pub(crate) struct Probe {
    sensor: Box<dyn Sensor>,
    node: Arc<str>,
    group: Group,
    facts: Vec<Option<VertexWriter>>,
    yielded: Yielded,
}

/// The outcome of a poll.
#[derive(Debug)]
pub(crate) struct PollOutcome {
    /// The time of the poll.
    pub time: Timestamp,
    /// The same time on the monotonic clock.
    pub at: Duration,
    /// Processor time that it took.
    pub spent: Duration,
    /// The counts of this poll.
    pub counts: Counts,
    /// The first reason for which a fact was refused.
    pub refusal: Option<String>,
    /// An error if the source could not be read.
    pub result: Result<(), PollError>,
}

/// The reason why a poll failed.
#[derive(Debug)]
pub(crate) enum PollError {
    /// The source could not be read this time.
    Source(io::Error),
    /// The sensor panicked. Its state may be inconsistent, so it must not be polled again.
    Panicked,
}

impl Probe {
    pub(crate) fn new(
        publisher: &Publisher,
        node: &Arc<str>,
        sensor: Box<dyn Sensor>,
    ) -> Result<Self, Failure> {
        let group = publisher.group(sensor.family().name)?;
        let (node, yielded) = (Arc::clone(node), Yielded::default());
        Ok(Self { sensor, node, group, facts: Vec::new(), yielded })
    }

    /// Polls the sensor, and measures the processor time.
    pub(crate) fn poll_alone(&mut self, times: (Timestamp, Duration)) -> PollOutcome {
        let started = thread_time();
        let outcome = self.poll(times);
        PollOutcome { spent: thread_time().saturating_sub(started), ..outcome }
    }

    /// Polls the sensor as one tick of its group. The caller sets the processor time of the outcome.
    pub(crate) fn poll(&mut self, (time, at): (Timestamp, Duration)) -> PollOutcome {
        self.yielded.clear();
        let tick = self.group.tick(time);
        let mut sink = SegmentSink::new(tick, &mut self.facts, &self.node, &mut self.yielded);
        let sensor = &mut self.sensor;
        let poll = || sensor.poll(&mut Tick { monotonic: at, sink: &mut sink });
        // A panic leaves two things unfinished: the sensor, which is not polled again, and the tick, which is not
        // committed.
        let result = match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(result) => result.map_err(PollError::Source),
            Err(_) => Err(PollError::Panicked),
        };
        // After an error the facts that were yielded are true, and others must not wait for those that were not.
        let (counts, refusal) = sink.finish(!matches!(result, Err(PollError::Panicked)));
        PollOutcome { time, at, spent: Duration::ZERO, counts, refusal, result }
    }

    /// Returns the values of the latest poll.
    pub(crate) fn yielded(&self) -> &Yielded {
        &self.yielded
    }

    /// Returns its number of facts.
    pub(crate) fn len(&self) -> usize {
        self.facts.iter().flatten().count()
    }

    /// Returns its facts, by the index that [`yielded`](Self::yielded) uses.
    pub(crate) fn facts(&self) -> &[Option<VertexWriter>] {
        &self.facts
    }

    /// Returns true if `topic` is one of its facts.
    pub(crate) fn has(&self, topic: &str) -> bool {
        self.facts.iter().flatten().any(|fact| fact.topic().as_str() == topic)
    }

    /// Returns the longest time that a poll may take if it begins now.
    pub(crate) fn patience(&self) -> Duration {
        self.sensor.patience()
    }

    /// Returns the facts that it cannot measure now.
    pub(crate) fn skips(&self) -> Vec<Skip> {
        self.sensor.skips()
    }

    /// Returns the number of its facts that were read since the last call, and true if any is followed.
    pub(crate) fn take_interest(&self, publisher: &Publisher) -> (u32, bool) {
        let (mut reads, mut is_followed) = (0, false);
        for fact in self.facts.iter().flatten() {
            let Interest { read, followed } = publisher.take_interest(fact);
            reads += u32::from(read);
            is_followed |= followed;
        }
        (reads, is_followed)
    }
}

/// Returns the processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

/// Reads a clock of processor time.
pub(crate) fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
