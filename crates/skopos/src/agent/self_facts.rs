//! The families `self` and `self_sensor`: what the agent does and costs.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::param::page_size;
use rustix::time::{ClockId, clock_gettime};
use skopos_model::schema::{self, Metric};
use skopos_model::{Scalar, Timestamp};
use skopos_sense::{FactId, Sink as _};
use skopos_shm::{Group, Publisher, VertexWriter};

use crate::agent::polled::Polled;
use crate::agent::sink::{Counts, SegmentSink};
use crate::failure::Failure;

static METRICS: [&Metric; 11] = [
    &schema::self_::CPU_SECONDS_TOTAL,
    &schema::self_::RESIDENT_BYTES,
    &schema::self_::SEGMENT_BYTES,
    &schema::self_::FACTS,
    &schema::self_::SAMPLES_STORED_TOTAL,
    &schema::self_::SAMPLES_UNCHANGED_TOTAL,
    &schema::self_::FACTS_REFUSED_TOTAL,
    &schema::self_::PUBLISH_ERRORS_TOTAL,
    &schema::self_::CLOCK_STEPS_TOTAL,
    &schema::self_::REQUESTS_TOTAL,
    &schema::self_::REQUESTS_REFUSED_TOTAL,
];

static SENSOR_METRICS: [&Metric; 5] = [
    &schema::self_sensor::POLL_SECONDS,
    &schema::self_sensor::POLL_CPU_SECONDS_TOTAL,
    &schema::self_sensor::POLLS_TOTAL,
    &schema::self_sensor::POLL_ERRORS_TOTAL,
    &schema::self_sensor::INTERVAL_SECONDS,
];

/// The facts and where they come from.
pub(crate) struct SelfFacts {
    group: Group,
    writers: Vec<Option<VertexWriter>>,
    ids: Option<[FactId; METRICS.len()]>,
    sensor_ids: Vec<[FactId; SENSOR_METRICS.len()]>,
    /// Kept open; `None` where procfs is hidden, and then the fact keeps no value.
    statm: Option<File>,
}

impl SelfFacts {
    pub(crate) fn new(publisher: &Publisher) -> Result<Self, Failure> {
        Ok(Self {
            group: publisher.group(schema::self_::FAMILY.name)?,
            writers: Vec::new(),
            ids: None,
            sensor_ids: Vec::new(),
            statm: File::open("/proc/self/statm").ok(),
        })
    }

    /// Publishes all of them as one tick.
    pub(crate) fn publish(
        &mut self,
        publisher: &Publisher,
        node: &str,
        polled: &[Polled],
        counts: &Counts,
        time: Timestamp,
    ) {
        // These facts count themselves at the next tick: publishing changes the counts.
        let mut own = Counts::default();
        let tick = self.group.tick(time);
        let mut sink = SegmentSink::new(publisher, tick, &mut self.writers, node, &mut own);
        let ids = *self.ids.get_or_insert_with(|| METRICS.map(|metric| sink.register(metric, "")));
        let values: [Option<Scalar>; METRICS.len()] = [
            Some(Scalar::F64(process_seconds())),
            self.statm.as_ref().and_then(resident_bytes).map(Scalar::U64),
            Some(Scalar::U64(publisher.used_bytes())),
            Some(Scalar::U64(counts.facts)),
            Some(Scalar::U64(counts.stored)),
            Some(Scalar::U64(counts.unchanged)),
            Some(Scalar::U64(counts.refused)),
            Some(Scalar::U64(counts.publish_errors)),
            Some(Scalar::U64(counts.clock_steps)),
            Some(Scalar::U64(counts.requests)),
            Some(Scalar::U64(counts.requests_refused)),
        ];
        for (id, value) in ids.into_iter().zip(values) {
            if let Some(value) = value {
                sink.set(id, value);
            }
        }
        for (at, polled) in polled.iter().enumerate() {
            if self.sensor_ids.len() == at {
                self.sensor_ids.push(SENSOR_METRICS.map(|m| sink.register(m, polled.name())));
            }
            let cost = polled.cost();
            let values = [
                Scalar::F64(cost.latest.as_secs_f64()),
                Scalar::F64(cost.total.as_secs_f64()),
                Scalar::U64(cost.polls),
                Scalar::U64(cost.errors),
                Scalar::F64(polled.interval().as_secs_f64()),
            ];
            for (id, value) in self.sensor_ids[at].into_iter().zip(values) {
                sink.set(id, value);
            }
        }
    }
}

/// Processor time of this process, user and system.
fn process_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The second number of `/proc/self/statm`, in pages (proc(5)).
fn resident_bytes(statm: &File) -> Option<u64> {
    let mut buffer = [0; 128];
    let len = statm.read_at(&mut buffer, 0).ok()?;
    let text = std::str::from_utf8(&buffer[..len]).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_size() as u64)
}
