//! The families `self` and `self_sensor`: the work of the agent and its cost.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::param::page_size;
use skopos_model::schema::{self, Metric};
use skopos_model::{Scalar, Timestamp};
use skopos_sense::{FactId, Sink as _};
use skopos_shm::{Group, Publisher, VertexWriter};

use crate::insights::InsightCounts;
use crate::link::Link;
use crate::overhead::Overhead;
use crate::polled::PolledSensor;
use crate::sink::{Counts, SegmentSink, Yielded};
use crate::traces::TraceCounts;
use skopos_term::Failure;

static METRICS: [&Metric; 29] = [
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
    &schema::self_::BUDGET_RATIO,
    &schema::self_::PLANNED_RATIO,
    &schema::self_::BUDGET_EXCEEDED_RATIO,
    &schema::self_::CPU_RATIO,
    &schema::self_::SENSING_RATIO,
    &schema::self_::BUSY_LANES,
    &schema::self_::INSIGHTS,
    &schema::self_::INSIGHTS_REFUSED,
    &schema::self_::INSIGHT_RUNS_TOTAL,
    &schema::self_::COUNTER_RESETS_TOTAL,
    &schema::self_::ANOMALY_EVENTS_TOTAL,
    &schema::self_::ANOMALY_CHANGES_TOTAL,
    &schema::self_::ANOMALY_REFUSED_TOTAL,
    &schema::self_::ANOMALY_IGNORED_TOTAL,
    &schema::self_::ANOMALY_RULES_UNMATCHED,
    &schema::self_::FOREIGN_FACTS_LEFT_OUT,
    &schema::self_::GRAPH_FACTS_REFUSED_TOTAL,
    &schema::self_::PREDICTIONS_REFUSED_TOTAL,
];

static TRACE_METRICS: [&Metric; 6] = [
    &schema::self_::TRACED_SERVICES,
    &schema::self_::TRACE_RECORDS_TOTAL,
    &schema::self_::TRACE_RECORDS_LOST_TOTAL,
    &schema::self_::TRACE_RECORDS_DELETED_TOTAL,
    &schema::self_::TRACE_REMOVED_BYTES_TOTAL,
    &schema::self_::TRACE_FAILURES_TOTAL,
];

static SENSOR_METRICS: [&Metric; 7] = [
    &schema::self_sensor::POLL_SECONDS,
    &schema::self_sensor::POLL_CPU_SECONDS_TOTAL,
    &schema::self_sensor::POLLS_TOTAL,
    &schema::self_sensor::POLL_ERRORS_TOTAL,
    &schema::self_sensor::INTERVAL_SECONDS,
    &schema::self_sensor::STRETCH,
    &schema::self_sensor::READS_PER_SECOND,
];

/// Number of shortest intervals between two publications of these facts: they are a third of all facts, and are
/// read rarely.
const EVERY: u32 = 5;

/// The instance of the facts about the link of an agent; a hub has facts of the same names.
const ROLE: &str = "agent";

/// The agent's own facts and their sources.
pub(crate) struct SelfFacts {
    group: Group,
    writers: Vec<Option<VertexWriter>>,
    yielded: Yielded,
    shortest: Duration,
    due: Duration,
    ids: Option<[FactId; METRICS.len()]>,
    sensor_ids: Vec<[FactId; SENSOR_METRICS.len()]>,
    link_ids: Vec<FactId>,
    /// Ids of the facts about traces, once there was a service.
    trace_ids: Option<[FactId; TRACE_METRICS.len()]>,
    /// `/proc/self/statm`, kept open; `None` if procfs is hidden, and then the fact has no value.
    statm: Option<File>,
}

/// The state of the agent that its own facts describe.
pub(crate) struct AgentState<'a> {
    pub counts: &'a Counts,
    pub overhead: &'a Overhead,
    pub busy_lanes: usize,
    pub insights: InsightCounts,
    /// Number of facts of other processes for which there is no room.
    pub left_out: u64,
    /// The connection with other nodes, if there is one.
    pub link: Option<&'a dyn Link>,
    /// Counts of the collector of traces, once there was a service.
    pub traces: Option<&'a TraceCounts>,
}

impl SelfFacts {
    pub(crate) fn new(publisher: &Publisher, shortest: Duration) -> Result<Self, Failure> {
        Ok(Self {
            group: publisher.group(schema::self_::FAMILY.name)?,
            writers: Vec::new(),
            yielded: Yielded::default(),
            shortest,
            due: Duration::ZERO,
            ids: None,
            sensor_ids: Vec::new(),
            link_ids: Vec::new(),
            trace_ids: None,
            statm: File::open("/proc/self/statm").ok(),
        })
    }

    /// Returns the values that were published last, for insights.
    pub(crate) fn yielded(&self) -> (&Yielded, &[Option<VertexWriter>]) {
        (&self.yielded, &self.writers)
    }

    /// Returns the time of the next publication, on the monotonic clock: now, if a reader follows any of them.
    pub(crate) fn due(&self, publisher: &Publisher) -> Duration {
        let followed = |fact: &VertexWriter| publisher.take_interest(fact).followed;
        if publisher.has_interest() && self.writers.iter().flatten().any(followed) {
            return Duration::ZERO;
        }
        self.due
    }

    /// Publishes all of them as a single tick.
    pub(crate) fn publish(
        &mut self,
        publisher: &Publisher,
        node: &str,
        polled: &[PolledSensor],
        state: &AgentState<'_>,
        time: Timestamp,
    ) {
        // Publishing changes the counts, so these facts count themselves at the next tick.
        self.due = Duration::from_nanos(skopos_shm::boottime()) + EVERY * self.shortest;
        let AgentState { counts, overhead, busy_lanes, ref insights, left_out, link, traces } =
            *state;
        self.yielded.clear();
        let tick = self.group.tick(time);
        let mut sink = SegmentSink::new(tick, &mut self.writers, node, &mut self.yielded);
        let ids = *self.ids.get_or_insert_with(|| METRICS.map(|metric| sink.register(metric, "")));
        let measured = overhead.measured();
        let values: [Option<Scalar>; METRICS.len()] = [
            Some(Scalar::F64(overhead.total().as_secs_f64())),
            self.statm.as_ref().and_then(resident_bytes).map(Scalar::U64),
            Some(Scalar::U64(publisher.used_bytes())),
            Some(Scalar::U64(counts.registered - counts.unregistered)),
            Some(Scalar::U64(counts.stored)),
            Some(Scalar::U64(counts.unchanged)),
            Some(Scalar::U64(counts.refused)),
            Some(Scalar::U64(counts.publish_errors)),
            Some(Scalar::U64(counts.clock_steps)),
            Some(Scalar::U64(counts.requests)),
            Some(Scalar::U64(counts.requests_refused)),
            Some(Scalar::F64(overhead.limit())),
            Some(Scalar::F64(overhead.planned().granted)),
            Some(Scalar::F64(overhead.planned().over)),
            measured.map(|m| Scalar::F64(m.in_all)),
            measured.map(|m| Scalar::F64(m.sensing)),
            Some(Scalar::U64(busy_lanes as u64)),
            Some(Scalar::U64(insights.insights)),
            Some(Scalar::U64(insights.refused)),
            Some(Scalar::U64(counts.insights_run)),
            Some(Scalar::U64(insights.counter_resets)),
            Some(Scalar::U64(insights.findings.events)),
            Some(Scalar::U64(insights.findings.changes)),
            Some(Scalar::U64(insights.findings.refused)),
            Some(Scalar::U64(insights.findings.not_finite + insights.findings.backwards)),
            Some(Scalar::U64(insights.rules_unmatched)),
            Some(Scalar::U64(left_out)),
            Some(Scalar::U64(insights.facts_refused)),
            Some(Scalar::U64(insights.predictions_refused)),
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
            let values = of_sensor(polled);
            for (id, value) in self.sensor_ids[at].into_iter().zip(values) {
                sink.set(id, value);
            }
        }
        if let Some(counts) = traces {
            publish_traces(counts, &mut self.trace_ids, &mut sink);
        }
        link.into_iter().for_each(|link| publish_link(link, &mut self.link_ids, &mut sink));
        sink.finish(true);
    }
}

/// Publishes the counts of the collector of traces, whose facts have these ids.
fn publish_traces(
    counts: &TraceCounts,
    ids: &mut Option<[FactId; TRACE_METRICS.len()]>,
    sink: &mut SegmentSink<'_>,
) {
    let ids = ids.get_or_insert_with(|| TRACE_METRICS.map(|metric| sink.register(metric, "")));
    for (id, value) in ids.iter().zip(of_traces(counts)) {
        sink.set(*id, Scalar::U64(value));
    }
}

/// Returns the values of [`TRACE_METRICS`].
fn of_traces(counts: &TraceCounts) -> [u64; TRACE_METRICS.len()] {
    let TraceCounts { services, records, lost, deleted, removed_bytes, failures } = counts;
    [services, records, lost, deleted, removed_bytes, failures].map(|c| c.load(Ordering::Relaxed))
}

/// Publishes the counts of a link, whose facts have these ids.
fn publish_link(link: &dyn Link, ids: &mut Vec<FactId>, sink: &mut SegmentSink<'_>) {
    let mut at = 0;
    link.visit_counts(&mut |metric, number| {
        if ids.len() == at {
            ids.push(sink.register(metric, ROLE));
        }
        sink.set(ids[at], Scalar::U64(number));
        at += 1;
    });
}

/// Returns the values of [`SENSOR_METRICS`].
fn of_sensor(polled: &PolledSensor) -> [Scalar; SENSOR_METRICS.len()] {
    let cost = polled.cost();
    [
        Scalar::F64(cost.latest.as_secs_f64()),
        Scalar::F64(cost.total.as_secs_f64()),
        Scalar::U64(cost.polls),
        Scalar::U64(cost.errors),
        Scalar::F64(polled.interval().as_secs_f64()),
        Scalar::F64(polled.stretch()),
        Scalar::F64(polled.reads_per_second()),
    ]
}

/// Reads the second number of `/proc/self/statm`, which counts pages (proc(5)).
fn resident_bytes(statm: &File) -> Option<u64> {
    let mut buffer = [0; 128];
    let len = statm.read_at(&mut buffer, 0).ok()?;
    let text = std::str::from_utf8(&buffer[..len]).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_size() as u64)
}
