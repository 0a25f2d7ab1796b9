//! A small language for graphs: facts and insights with short names, times in seconds.

use skopos_model::{Kind, Scalar, Timestamp, Unit, Value, ValueType};
use skopos_score::{Error, Graph, Input, Inputs, Insight, InsightSpec, Outcome, Unknown, VertexId};

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

/// The sum of all numbers of all inputs; an input that is not needed contributes only its known
/// numbers.
pub(super) struct Sum(pub(super) Vec<bool>);

impl Insight for Sum {
    fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome {
        let (mut sum, mut any) = (0.0, false);
        for (slot, needed) in self.0.iter().enumerate() {
            for cell in inputs.all(slot) {
                match cell.number() {
                    Ok(number) => (sum, any) = (sum + number, true),
                    Err(unknown) if *needed => return Err(unknown),
                    Err(_) => {}
                }
            }
        }
        // Without any input there is no age, which the model could not know.
        any.then_some(Value::F64(sum)).ok_or_else(|| Unknown::new("nothing is known"))
    }
}

/// An input with its pattern as its name; `?` before it makes it optional, ` bytes` after it
/// requires that unit.
pub(super) fn input(text: &str) -> Input {
    let (needed, text) = text.strip_prefix('?').map_or((true, text), |rest| (false, rest));
    let (pattern, unit) = text.split_once(' ').map_or((text, None), |(p, u)| (p, Some(u)));
    let unit = unit.map(|unit| Unit::new(unit).expect("a unit"));
    Input { name: pattern.into(), pattern: pattern.into(), unit, needed }
}

pub(super) fn spec(topic: &str, inputs: &[&str]) -> InsightSpec {
    InsightSpec {
        topic: topic.parse().expect("a topic"),
        unit: Unit::NONE,
        kind: Kind::Gauge,
        value_type: ValueType::F64,
        inputs: inputs.iter().map(|text| input(text)).collect(),
        name: topic.into(),
        formula: "sum".into(),
    }
}

pub(super) fn try_sum(graph: &mut Graph, topic: &str, inputs: &[&str]) -> Result<VertexId, Error> {
    let spec = spec(topic, inputs);
    let needed = spec.inputs.iter().map(|input| input.needed).collect();
    graph.add_insight(spec, Box::new(Sum(needed)))
}

pub(super) fn sum(graph: &mut Graph, topic: &str, inputs: &[&str]) -> VertexId {
    try_sum(graph, topic, inputs).unwrap_or_else(|e| panic!("{topic}: {e}"))
}

pub(super) fn fact_in(graph: &mut Graph, topic: &str, unit: Unit) -> VertexId {
    let parsed = topic.parse().expect("a topic");
    graph.add_fact(parsed, unit, Kind::Gauge).unwrap_or_else(|e| panic!("{topic}: {e}"))
}

pub(super) fn fact(graph: &mut Graph, topic: &str) -> VertexId {
    fact_in(graph, topic, Unit::NONE)
}

/// A fact with `value` at `second`.
pub(super) fn known(graph: &mut Graph, topic: &str, second: i64, value: f64) -> VertexId {
    let id = fact(graph, topic);
    set(graph, id, second, value);
    id
}

pub(super) fn set(graph: &mut Graph, id: VertexId, second: i64, value: f64) -> bool {
    graph.set(id, at(second), Scalar::F64(value)).expect("a fact")
}

/// Runs at `second` and returns the reported insights: `topic=value`, `topic?reason`, and `topic@`
/// if only the age changed.
pub(super) fn run(graph: &mut Graph, second: i64) -> Vec<String> {
    let mut told = Vec::new();
    graph.run(at(second), &mut |computed| {
        let topic = computed.topic;
        told.push(match computed.outcome {
            _ if !computed.changed => format!("{topic}@"),
            Ok(value) => format!("{topic}={value}"),
            Err(unknown) => format!("{topic}?{unknown}"),
        });
    });
    told
}

/// Returns `value` or `?reason` of a vertex.
pub(super) fn outcome(graph: &Graph, id: VertexId) -> String {
    match graph.view(id).expect("it is there").outcome() {
        Some(Ok(value)) => value.to_string(),
        Some(Err(unknown)) => format!("?{unknown}"),
        None => "nothing yet".to_owned(),
    }
}

/// Returns the time of a vertex's last poll in seconds, and the input that determines it.
pub(super) fn age(graph: &Graph, id: VertexId) -> (i64, String) {
    let view = graph.view(id).expect("it is there");
    let oldest = view.oldest().map(|id| graph.view(id).expect("an input").topic().to_string());
    (view.checked_at().as_nanos() / 1_000_000_000, oldest.unwrap_or_default())
}
