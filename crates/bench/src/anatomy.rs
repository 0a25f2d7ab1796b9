//! `skopos-bench anatomy`: the parts of the time of a fact and of an insight (the paper's Figure 4).
//!
//! Like the paper, it measures one fact, the capacity left on a file system, and one insight over it.
//! The hook asks the kernel about a file system in which a file grows and shrinks, so that each poll
//! finds a change.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::time::Instant;

use skopos_model::{Kind, Scalar, Topic, Unit, Value, ValueType};
use skopos_score::{Graph, VertexId};
use skopos_shm::{Group, Publisher, VertexSpec, VertexWriter};

use super::dag::{Greatest, spec};
use super::machine::Machine;
use super::report::{Better, Figure, Report, Row};
use super::scratch::Scratch;
use super::stats::{Latencies, Timer, nanos_since};
use crate::plan::Plan;
use skopos_term::Failure;

/// The change of the file between two polls: some blocks of any file system.
static GROWTH: [u8; 64 * 1024] = [1; 64 * 1024];
/// The paper's column, from its text about Figure 4.
const PAPER: &str = "paper";

/// Nanoseconds of each part, poll by poll.
struct Spent {
    hook: Latencies,
    build: Latencies,
    publish: Latencies,
    other: Latencies,
    insight_build: Latencies,
    insight_publish: Latencies,
    insight_other: Latencies,
    looks: u64,
    changes: u64,
}

/// A fact and an insight, in the graph and in the segment.
struct Pair {
    _publisher: Publisher,
    sensor: Group,
    fact: (VertexId, VertexWriter),
    insight: VertexWriter,
    insight_id: VertexId,
    graph: Graph,
}

/// Runs the benchmark.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::new("anatomy", Machine::this());
    let (memory, disk) = (Scratch::new()?, Scratch::on_disk()?);
    let timer = Timer::measure();
    let mut pair = Pair::new(&memory.dir("anatomy")?)?;
    let path = disk.path().join("grows");
    let broken = |e: std::io::Error| Failure::new("cannot write a temporary file").because(&e);
    let mut file = File::create(&path).map_err(broken)?;
    let mut spent = Spent::new();
    plan.say("looking at the capacity of a file system …");
    let started = Instant::now();
    while started.elapsed() < plan.slice * u32::try_from(plan.rounds).unwrap_or(1) {
        if spent.looks.is_multiple_of(2) {
            file.write_all(&GROWTH).map_err(broken)?;
        } else {
            file.set_len(0).and_then(|()| file.rewind()).map_err(broken)?;
        }
        pair.look(disk.path(), timer.p50, &mut spent)?;
    }
    report.add(rows(&spent));
    report.note(format!(
        "{} looks at the capacity of the file system of temporary files (statvfs), {} of which \
         found another one; shares are those of the medians; hook: the system call; build: the time, and the sample's value; \
         publish: into shared memory; other: into the graph; of the insight: its evaluation, its \
         publish, and what else the graph does; an empty pair of clock readings ({} ns) is taken off \
         each part",
        spent.looks, spent.changes, timer.p50
    ));
    Ok(report)
}

impl Spent {
    fn new() -> Self {
        Self {
            hook: Latencies::new(),
            build: Latencies::new(),
            publish: Latencies::new(),
            other: Latencies::new(),
            insight_build: Latencies::new(),
            insight_publish: Latencies::new(),
            insight_other: Latencies::new(),
            looks: 0,
            changes: 0,
        }
    }
}

impl Pair {
    fn new(dir: &Path) -> Result<Self, Failure> {
        let publisher = Publisher::builder("bench").dir(dir).create()?;
        let sensor = publisher.group("fs")?;
        let mut graph = Graph::default();
        let topic = topic("bench/fs/tmp/available");
        let writer = sensor.register(VertexSpec::new(topic.clone(), ValueType::U64))?;
        let fact =
            (graph.add_fact(topic.clone(), Unit::NONE, Kind::Gauge).map_err(failed)?, writer);
        let insight_topic = self::topic("bench/insight/tmp/available");
        let insight = publisher.register(VertexSpec::new(insight_topic.clone(), ValueType::F64))?;
        let spec = spec(insight_topic, topic.as_str());
        let insight_id = graph.add_insight(spec, Box::new(Greatest)).map_err(failed)?;
        Ok(Self { _publisher: publisher, sensor, fact, insight, insight_id, graph })
    }

    /// Measures a poll, all the way to the insight.
    fn look(&mut self, path: &Path, empty: u64, spent: &mut Spent) -> Result<(), Failure> {
        let part = |start: Instant| nanos_since(start).saturating_sub(empty);
        let start = Instant::now();
        let found = rustix::fs::statvfs(path);
        spent.hook.record(part(start));
        let found = found.map_err(|e| {
            Failure::new("cannot ask a file system").because(&std::io::Error::from(e))
        })?;

        let start = Instant::now();
        let now = skopos_shm::now();
        let value = Scalar::U64(found.f_bavail * found.f_frsize);
        spent.build.record(part(start));

        let start = Instant::now();
        let (id, writer) = &self.fact;
        let mut tick = self.sensor.tick(now);
        tick.publish(writer, value)?;
        tick.commit();
        spent.publish.record(part(start));

        let start = Instant::now();
        let changed = self.graph.set(*id, now, value).map_err(failed)?;
        spent.other.record(part(start));
        spent.looks += 1;
        spent.changes += u64::from(changed);

        self.compute(now, empty, spent)
    }

    /// Measures the insight's part of a poll.
    fn compute(
        &mut self,
        now: skopos_model::Timestamp,
        empty: u64,
        spent: &mut Spent,
    ) -> Result<(), Failure> {
        let epoch = Instant::now();
        let mut clock = || nanos_since(epoch);
        let before = self.cost()?;
        let (mut publishing, mut published) = (0, 0);
        let mut outcome: Result<(), Failure> = Ok(());
        let insight = &self.insight;
        let start = Instant::now();
        self.graph.run_timed(now, Some(&mut clock), &mut |computed| {
            let start = Instant::now();
            if let Ok(Value::F64(value)) = computed.outcome
                && let Err(e) = insight.publish_at(computed.since, *value)
            {
                outcome = Err(e.into());
            }
            publishing += nanos_since(start).saturating_sub(empty);
            published += 1;
        });
        let all = nanos_since(start).saturating_sub(empty);
        outcome?;
        let after = self.cost()?;
        let evaluations = after.runs - before.runs;
        let building = (after.total_ns - before.total_ns).saturating_sub(empty * evaluations);
        spent.insight_build.record(building);
        spent.insight_publish.record(publishing);
        // Each part contains two readings of the clock.
        let clocks = empty * (evaluations + published) * 2;
        spent.insight_other.record(all.saturating_sub(building + publishing + clocks));
        Ok(())
    }

    fn cost(&self) -> Result<skopos_score::graph::Cost, Failure> {
        Ok(self.graph.view(self.insight_id).map_err(failed)?.cost().unwrap_or_default())
    }
}

fn rows(spent: &Spent) -> Vec<Row> {
    let fact = [
        ("hook", &spent.hook, Some(97.5)),
        ("build", &spent.build, None),
        ("publish", &spent.publish, Some(1.8)),
        ("other", &spent.other, None),
    ];
    let insight = [
        ("build", &spent.insight_build, None),
        ("publish", &spent.insight_publish, None),
        ("other", &spent.insight_other, None),
    ];
    let mut rows = Vec::new();
    for (case, parts) in [("fact vertex", &fact[..]), ("insight vertex", &insight[..])] {
        let whole: f64 = parts.iter().map(|(_, spent, _)| spent.percentile(50.0)).sum();
        for (part, spent, paper) in parts {
            let nanos = spent.percentile(50.0);
            let share = Row::new(
                case,
                format!("{part}, share"),
                "%",
                100.0 * nanos / whole,
                Better::Neither,
            );
            rows.push(match paper {
                Some(paper) => share.peer(PAPER, Figure::Known(*paper)),
                None => share,
            });
            for (name, percent) in [("p50", 50.0), ("p99", 99.0)] {
                let nanos = spent.percentile(percent);
                rows.push(Row::new(case, format!("{part}, {name}"), "ns", nanos, Better::Neither));
            }
        }
    }
    rows
}

fn topic(text: &str) -> Topic {
    text.parse().unwrap_or_else(|_| unreachable!("{text} is a topic"))
}

fn failed(e: skopos_score::Error) -> Failure {
    Failure::new("the graph of the measurement is wrong").because(&e)
}
