//! Skopos: one process writes facts into shared memory and into the graph, and insights from the graph
//! into shared memory. A reader in another process polls the top insight all the time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skopos_model::{Kind, Scalar, Topic, Unit, Value, ValueType};
use skopos_score::{Graph, Input, Inputs, Insight, InsightSpec, Outcome, Unknown, VertexId};
use skopos_shm::{Group, Host, Publisher, VertexSpec, VertexWriter};

use super::shape::{Shape, beat};
use crate::clock::monotonic;
use crate::cores::{Core, on_first_core, pin};
use crate::stats::Latencies;
use crate::worker::{Line, Role, Worker};
use skopos_term::Failure;

/// The insight at the top.
const TOP: &str = "bench/dag/top/greatest";

/// An insight: the greatest of its inputs.
pub(crate) struct Greatest;

impl Insight for Greatest {
    fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome {
        let mut greatest: Option<f64> = None;
        for cell in inputs.all(0) {
            let number = cell.number()?;
            greatest = Some(greatest.map_or(number, |other| other.max(number)));
        }
        greatest.map(Value::F64).ok_or_else(|| Unknown::new("the insight does not have an input"))
    }
}

/// The vertex of the greatest fact that `pattern` selects.
pub(crate) fn spec(topic: Topic, pattern: &str) -> InsightSpec {
    InsightSpec {
        topic,
        unit: Unit::NONE,
        kind: Kind::Gauge,
        value_type: ValueType::F64,
        inputs: vec![Input {
            name: "inputs".into(),
            pattern: pattern.into(),
            unit: Some(Unit::NONE),
            needed: true,
        }],
        name: "greatest".into(),
        formula: "max(inputs)".into(),
    }
}

/// Publishes facts and the insights over them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SkoposDag {
    dir: PathBuf,
    shape: Shape,
}

/// The facts of one sensor and the insights over them, in the graph and in the segment.
struct Dag {
    _publisher: Publisher,
    sensor: Group,
    facts: Vec<(VertexId, VertexWriter)>,
    insights: HashMap<VertexId, VertexWriter>,
    graph: Graph,
}

impl Role for SkoposDag {
    const NAME: &'static str = "dag_skopos";

    fn work(self, line: &Line) -> Result<(), Failure> {
        pin(Core::Last);
        let mut dag = Dag::new(&self.dir, self.shape)?;
        // Times since now are small enough to be exact as doubles.
        let started = monotonic();
        dag.change(1, self.shape.facts, started)?;
        line.send(&started)?;
        let changing = if self.shape.all_change { self.shape.facts } else { 1 };
        beat(|round| dag.change(round, changing, started))
    }
}

impl Dag {
    fn new(dir: &Path, shape: Shape) -> Result<Self, Failure> {
        let publisher = Publisher::builder("bench").dir(dir).create()?;
        let sensor = publisher.group("sensor")?;
        let mut graph = Graph::default();
        let mut facts = Vec::new();
        for number in 0..shape.facts {
            let topic = topic(&format!("bench/fact/f{number}/value"));
            let writer = sensor.register(VertexSpec::new(topic.clone(), ValueType::U64))?;
            facts.push((graph.add_fact(topic, Unit::NONE, Kind::Gauge).map_err(failed)?, writer));
        }
        let mut insights = HashMap::new();
        let mut below = "bench/fact/*/value".to_owned();
        for layer in 1..=shape.layers {
            let text = format!("bench/dag/l{layer}/greatest");
            let topic = topic(if layer == shape.layers { TOP } else { &text });
            let writer = publisher.register(VertexSpec::new(topic.clone(), ValueType::F64))?;
            let id = graph.add_insight(spec(topic, &below), Box::new(Greatest)).map_err(failed)?;
            insights.insert(id, writer);
            below = text;
        }
        Ok(Self { _publisher: publisher, sensor, facts, insights, graph })
    }

    /// Publishes a tick, in which the first fact is the time and the others are the round.
    fn change(&mut self, round: u64, changing: usize, started: u64) -> Result<(), Failure> {
        let elapsed = monotonic() - started;
        let now = skopos_shm::now();
        let mut tick = self.sensor.tick(now);
        for (place, (id, writer)) in self.facts[..changing].iter().enumerate() {
            let value = if place == 0 { elapsed } else { round };
            tick.publish(writer, value)?;
            self.graph.set(*id, now, Scalar::U64(value)).map_err(failed)?;
        }
        tick.commit();
        let mut outcome = Ok(());
        let insights = &self.insights;
        self.graph.run(now, &mut |computed| {
            if let (Ok(Value::F64(value)), Some(writer)) =
                (computed.outcome, insights.get(&computed.id))
                && let Err(e) = writer.publish_at(computed.since, *value)
            {
                outcome = Err(e.into());
            }
        });
        outcome
    }
}

/// Measures for `slice` with a reader on a core of its own.
pub(super) fn measure(
    dir: &Path,
    shape: Shape,
    slice: Duration,
    into: &mut Latencies,
) -> Result<(), Failure> {
    let mut worker = Worker::start(&SkoposDag { dir: dir.into(), shape })?;
    let started: u64 = worker.receive()?;
    let vertex = Host::open_dirs(vec![dir.into()])?.find(&topic(TOP))?;
    on_first_core(|| {
        let begun = Instant::now();
        let mut last = None;
        loop {
            let value = vertex.latest()?.as_f64();
            let now = monotonic();
            if value != last {
                // The first value may have waited for this reader.
                if let (Some(then), Some(_)) = (value, last) {
                    into.record((now - started).saturating_sub(then as u64));
                }
                last = value;
                if begun.elapsed() > slice {
                    return Ok(());
                }
            } else if begun.elapsed() > slice * 4 && !worker.runs() {
                return Err(Failure::new("the publisher ended"));
            }
        }
    })
}

fn topic(text: &str) -> Topic {
    text.parse().unwrap_or_else(|_| unreachable!("{text} is a topic"))
}

fn failed(e: skopos_score::Error) -> Failure {
    Failure::new("the graph of the measurement is wrong").because(&e)
}
