//! Findings of the detectors, published as events.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use skopos_model::{Kind, Sample, Structured, Timestamp, Topic, Value, ValueType};
use skopos_score::anomaly::{Event, Rule, Watch, Watched};
use skopos_shm::{Publisher, VertexSpec, VertexWriter};

use crate::sink::Counts;
use skopos_term::Failure;

/// Ring length of a rule's events: an hour of a rule that fires twice a minute.
const SLOTS: u32 = 128;

/// The rules that come with Skopos, which are useful on every machine.
const USUAL: &str = include_str!("usual_rules.toml");

/// The detectors, and a vertex `NODE/anomaly/RULE` for the events of each rule.
pub(super) struct Findings {
    node: Arc<str>,
    /// The names of the configured rules.
    configured: HashSet<String>,
    watch: Watch,
    events: Vec<Event>,
    writers: HashMap<String, VertexWriter>,
}

/// Rules in the format of the configuration file.
#[derive(serde::Deserialize)]
struct Rules {
    anomaly: Vec<Rule>,
}

impl Findings {
    /// Makes detectors of the built-in and the configured rules. A configured rule replaces a built-in one of the
    /// same name.
    ///
    /// # Errors
    /// A rule is not valid.
    pub(super) fn new(node: &Arc<str>, configured: &[Rule]) -> Result<Self, Failure> {
        let usual: Rules =
            toml::from_str(USUAL).map_err(|e| Failure::new("the built-in rules").because(&e))?;
        let is_replaced = |rule: &Rule| configured.iter().any(|other| other.name == rule.name);
        let mut rules = usual.anomaly;
        rules.retain(|rule| !is_replaced(rule));
        rules.extend(configured.iter().cloned());
        let watch = Watch::of_node(&rules, node).map_err(|e| {
            Failure::new("[[anomaly]]")
                .because(&e)
                .hint("docs/reference/anomalies.md explains the detectors")
        })?;
        let configured = configured.iter().map(|rule| rule.name.clone()).collect();
        let (events, writers) = (Vec::new(), HashMap::new());
        Ok(Self { node: Arc::clone(node), configured, watch, events, writers })
    }

    /// Returns the detectors.
    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Returns the number of configured rules without a matching topic so far.
    pub(super) fn rules_unmatched(&self) -> u64 {
        self.watch.unmatched().filter(|rule| self.configured.contains(*rule)).count() as u64
    }

    pub(super) fn joined(&mut self, topic: &Topic, kind: Kind) -> Option<Watched> {
        self.watch.joined(topic, kind)
    }

    pub(super) fn left(&mut self, watched: Watched) {
        self.watch.left(watched);
    }

    pub(super) fn observe(&mut self, watched: Watched, time: Timestamp, value: f64) {
        self.watch.observe(watched, time, value, &mut self.events);
    }

    /// Publishes the events since the last call.
    pub(super) fn publish(&mut self, publisher: &Publisher, counts: &mut Counts) {
        let Self { node, events, writers, .. } = self;
        for event in events.drain(..) {
            let Some(writer) = writer(writers, &event.rule, node, publisher) else {
                counts.publish_errors += 1;
                continue;
            };
            let Ok(value) = Structured::new(as_json(&event)) else {
                counts.publish_errors += 1;
                continue;
            };
            let sample = Sample::measured(event.at, Value::Structured(value));
            counts.published(&writer.publish_sample(&sample));
        }
    }
}

/// Returns the vertex of a rule, and registers it at the first event.
fn writer<'a>(
    writers: &'a mut HashMap<String, VertexWriter>,
    rule: &str,
    node: &str,
    publisher: &Publisher,
) -> Option<&'a VertexWriter> {
    if !writers.contains_key(rule) {
        let topic = Topic::new(&format!("{node}/anomaly/{rule}")).ok()?;
        let spec = VertexSpec::new(topic, ValueType::Structured).kind(Kind::State).slots(SLOTS);
        writers.insert(rule.to_owned(), publisher.register(spec).ok()?);
    }
    writers.get(rule)
}

/// Encodes an event with the expected and the actual value. An absent bound is `null`.
pub(super) fn as_json(event: &Event) -> serde_json::Value {
    let Event { topic, rule, detector, at, since, came, expected, score, state, suppressed } =
        event;
    json!({
        "rule": rule, "detector": detector, "topic": topic.as_str(), "state": state.name(),
        "at_ns": at.as_nanos(), "since_ns": since.as_nanos(), "came": came,
        "expected": {
            "value": finite(expected.value), "low": finite(expected.low), "high": finite(expected.high),
        },
        "score": finite(*score), "suppressed": suppressed,
    })
}

fn finite(number: f64) -> Option<f64> {
    number.is_finite().then_some(number)
}
