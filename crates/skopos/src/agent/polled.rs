//! One sensor with its group of facts, its interval and its cost.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use skopos_model::Timestamp;
use skopos_sense::{Sensor, Skip, Tick};
use skopos_shm::{Group, Publisher, VertexWriter};

use crate::agent::Event;
use crate::agent::sink::{Counts, SegmentSink};
use crate::control::SensorStatus;
use crate::failure::Failure;

/// A sensor that the agent polls.
pub(crate) struct Polled {
    sensor: Box<dyn Sensor>,
    group: Group,
    facts: Vec<Option<VertexWriter>>,
    interval: Duration,
    due: Duration,
    polled_at: Duration,
    error: Option<String>,
    refusal_told: bool,
    cost: Cost,
}

/// One wake of the agent, in which some sensors are polled.
pub(crate) struct Wake<'a> {
    publisher: &'a Publisher,
    node: &'a str,
    /// One time for all that is polled at this wake.
    time: Timestamp,
    monotonic: Duration,
    counts: &'a mut Counts,
    events: &'a mut Vec<Event>,
    /// Processor time of this thread up to the poll that comes next: asked once between two polls,
    /// because asking is a system call.
    spent: Duration,
}

impl<'a> Wake<'a> {
    pub(crate) fn new(
        publisher: &'a Publisher,
        node: &'a str,
        (time, monotonic): (Timestamp, Duration),
        counts: &'a mut Counts,
        events: &'a mut Vec<Event>,
    ) -> Self {
        Self { publisher, node, time, monotonic, counts, events, spent: thread_time() }
    }
}

/// What a sensor's polls have cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Polls made.
    pub(crate) polls: u64,
    /// Of them, those in which the source could not be read.
    pub(crate) errors: u64,
    /// Processor time of the latest.
    pub(crate) latest: Duration,
    /// Processor time of all.
    pub(crate) total: Duration,
}

impl Polled {
    pub(crate) fn new(
        publisher: &Publisher,
        sensor: Box<dyn Sensor>,
        interval: Duration,
    ) -> Result<Self, Failure> {
        let group = publisher.group(sensor.family().name)?;
        Ok(Self {
            sensor,
            group,
            facts: Vec::new(),
            interval,
            due: Duration::ZERO,
            polled_at: Duration::ZERO,
            error: None,
            refusal_told: false,
            cost: Cost::default(),
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.sensor.family().name
    }

    /// When the next poll is due, on the monotonic clock.
    pub(crate) fn due(&self) -> Duration {
        self.due
    }

    /// When the latest poll was, on the monotonic clock; zero before the first.
    pub(crate) fn polled_at(&self) -> Duration {
        self.polled_at
    }

    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    pub(crate) fn cost(&self) -> Cost {
        self.cost
    }

    /// Why the latest poll failed, if it did.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// True if `topic` is one of its facts.
    pub(crate) fn has(&self, topic: &str) -> bool {
        self.facts.iter().flatten().any(|fact| fact.topic().as_str() == topic)
    }

    pub(crate) fn status(&self) -> SensorStatus {
        SensorStatus {
            name: self.name().to_owned(),
            facts: self.facts.iter().flatten().count(),
            polls: self.cost.polls,
            interval_seconds: self.interval.as_secs_f64(),
            poll_seconds: self.cost.latest.as_secs_f64(),
            error: self.error.clone(),
        }
    }

    /// What it cannot measure now.
    pub(crate) fn skips(&self) -> Vec<Skip> {
        self.sensor.skips()
    }

    /// Polls the sensor as one tick of its group.
    pub(crate) fn poll(&mut self, wake: &mut Wake<'_>) {
        let &mut Wake { publisher, node, time, monotonic, spent: started, .. } = wake;
        let mut sink =
            SegmentSink::new(publisher, self.group.tick(time), &mut self.facts, node, wake.counts);
        let result = self.sensor.poll(&mut Tick { monotonic, sink: &mut sink });
        let refusal = sink.finish();
        wake.spent = thread_time();
        let spent = wake.spent.saturating_sub(started);
        let events = &mut *wake.events;
        self.polled_at = monotonic;
        self.cost.polls += 1;
        self.cost.latest = spent;
        self.cost.total += spent;
        // Whole multiples of the interval, so that sensors with one interval share one wake.
        let beats = monotonic.as_nanos() / self.interval.as_nanos() + 1;
        let next = beats.saturating_mul(self.interval.as_nanos());
        self.due = Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX));
        let sensor = self.sensor.family().name;
        if let Some(error) = refusal
            && !std::mem::replace(&mut self.refusal_told, true)
        {
            events.push(Event::FactRefused { sensor, error });
        }
        match (result, self.error.is_some()) {
            (Ok(()), false) => {}
            (Ok(()), true) => {
                self.error = None;
                events.push(Event::SensorRecovered { sensor });
            }
            (Err(e), told) => {
                self.cost.errors += 1;
                if !told {
                    let error = e.to_string();
                    self.error = Some(error.clone());
                    events.push(Event::SensorFailed { sensor, error });
                }
            }
        }
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
