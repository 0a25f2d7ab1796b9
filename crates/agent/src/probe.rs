//! A sensor with its facts in the segment: what can be polled, in whichever thread.

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

/// A sensor, its group of vertices and what its latest poll yielded.
pub(crate) struct Probe {
    sensor: Box<dyn Sensor>,
    node: Arc<str>,
    group: Group,
    facts: Vec<Option<VertexWriter>>,
    yielded: Yielded,
}

/// What became of a poll.
#[derive(Debug)]
pub(crate) struct Polling {
    /// When it was.
    pub time: Timestamp,
    /// The same on the monotonic clock.
    pub at: Duration,
    /// Processor time that it took.
    pub spent: Duration,
    /// What it counted.
    pub counts: Counts,
    /// The first reason for which a fact was refused in it.
    pub refusal: Option<String>,
    /// Whether the source could be read.
    pub result: Result<(), PollError>,
}

/// Why a poll found nothing.
#[derive(Debug)]
pub(crate) enum PollError {
    /// The source could not be read this time.
    Source(io::Error),
    /// The sensor panicked. What it has in mind may be half done, so it must not be asked again.
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

    /// Polls the sensor as one tick of its group. `started` is the processor time of this thread,
    /// which is raised to what it is afterwards: asking is a system call, so it is asked once
    /// between two polls.
    pub(crate) fn poll(
        &mut self,
        (time, at): (Timestamp, Duration),
        started: &mut Duration,
    ) -> Polling {
        self.yielded.clear();
        let tick = self.group.tick(time);
        let mut sink = SegmentSink::new(tick, &mut self.facts, &self.node, &mut self.yielded);
        let sensor = &mut self.sensor;
        let poll = || sensor.poll(&mut Tick { monotonic: at, sink: &mut sink });
        // What a panic leaves half done: the sensor, which is not asked again, and the tick, whose
        // facts are whole one by one.
        let result = match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(result) => result.map_err(PollError::Source),
            Err(_) => Err(PollError::Panicked),
        };
        let (counts, refusal) = sink.finish();
        let spent = thread_time().saturating_sub(*started);
        *started += spent;
        Polling { time, at, spent, counts, refusal, result }
    }

    /// What the latest poll yielded.
    pub(crate) fn yielded(&self) -> &Yielded {
        &self.yielded
    }

    /// How many facts it has.
    pub(crate) fn len(&self) -> usize {
        self.facts.iter().flatten().count()
    }

    /// Its facts, by the index that [`yielded`](Self::yielded) has.
    pub(crate) fn facts(&self) -> &[Option<VertexWriter>] {
        &self.facts
    }

    /// True if `topic` is one of its facts.
    pub(crate) fn has(&self, topic: &str) -> bool {
        self.facts.iter().flatten().any(|fact| fact.topic().as_str() == topic)
    }

    /// How long a poll that begins now may take.
    pub(crate) fn patience(&self) -> Duration {
        self.sensor.patience()
    }

    /// What it cannot measure now.
    pub(crate) fn skips(&self) -> Vec<Skip> {
        self.sensor.skips()
    }

    /// How many of its facts were read since this was asked last, and whether one is followed.
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

/// Processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

/// What a clock of processor time shows.
pub(crate) fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
