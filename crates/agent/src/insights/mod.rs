//! What is computed from facts while they come: insights, findings, predictions.
//!
//! Every fact that a sensor yields or a user publishes is a vertex of the graph. After each tick the
//! graph runs, and what came of it is published like any fact: an insight under `insight/`, a
//! finding under `anomaly/`, a prediction under `predicted/`.

mod findings;
pub(crate) mod from_sql;
mod predictions;
mod view;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use skopos_model::{Kind, Sample, Timestamp, Topic, Unit, Value, ValueType};
use skopos_score::anomaly::Watched;
use skopos_score::graph::{Computed, InsightSpec, VertexId};
use skopos_score::insight::{BuiltIn, Changes, Definition, Tiers};
use skopos_score::{Graph, Insight, Unknown};
use skopos_shm::{Publisher, VertexSpec, VertexWriter};

use crate::clock::Clock;
use crate::config::Config;
use crate::sink::{Change, Counts, Yielded};
use skopos_term::Failure;

use findings::Findings;
use predictions::{Predicted, Predictions};

/// Records that memory keeps of an insight: sixteen fill the bytes that there are for them.
const RECORD_SLOTS: u32 = 16;

/// How much later a value is than the one before, if its inputs are not younger.
const NANOSECOND: Duration = Duration::from_nanos(1);

/// The graph and what it feeds.
pub(crate) struct Insights {
    node: Arc<str>,
    graph: Graph,
    built_in: BuiltIn,
    /// By the sensor's number and the fact's index in its table.
    facts: Vec<Vec<Option<Followed>>>,
    computed: HashMap<VertexId, Computing>,
    findings: Findings,
    predictions: Predictions,
    /// Built-in insights that could not be added.
    refused: Vec<Refused>,
    /// Facts that the graph has refused so far.
    facts_refused: u64,
    /// Names of configured insights that a hub computes.
    left_to_hub: Vec<String>,
}

/// A fact in the graph, and who else looks at it.
#[derive(Debug)]
pub(crate) struct Followed {
    vertex: VertexId,
    watched: Option<Watched>,
    predicted: Option<Predicted>,
}

/// An insight's place in the segment, and who looks at it.
struct Computing {
    /// False for one that the configuration asks for: facts that come and go never take it away.
    is_built_in: bool,
    writer: VertexWriter,
    /// Time of its latest sample.
    sampled_at: Timestamp,
    /// The time up to which it was last said to stand.
    stands_at: Timestamp,
    watched: Option<Watched>,
    predicted: Option<Predicted>,
}

/// A built-in insight that could not be added.
struct Refused {
    topic: Topic,
    definition: &'static Definition,
    reason: String,
}

/// What insights and findings come to so far.
pub(crate) struct InsightCounts {
    /// Insights that there are.
    pub insights: u64,
    /// Insights for which there was no room.
    pub refused: u64,
    /// Counters that stepped back.
    pub counter_resets: u64,
    /// Configured anomaly rules that nothing has matched.
    pub rules_unmatched: u64,
    /// What the detectors counted.
    pub findings: skopos_score::anomaly::Counts,
    /// Facts that the graph refused: nothing is computed from them.
    pub facts_refused: u64,
    /// Topics that were to be predicted and are not, for lack of room.
    pub predictions_refused: u64,
}

impl Insights {
    /// The built-in insights and the configured ones.
    ///
    /// # Errors
    /// Something in the configuration cannot be.
    pub(crate) fn new(
        node: &Arc<str>,
        config: &Config,
        publisher: &Publisher,
    ) -> Result<Self, Failure> {
        let tiers = match config.tiers_text()? {
            None => Tiers::default(),
            Some((path, text)) => Tiers::parse(&text)
                .map_err(|e| Failure::new(path.display().to_string()).because(&e).hint(e.hint()))?,
        };
        let here = config.path.as_deref();
        let (built_in, changes) = BuiltIn::new(node, tiers);
        let mut insights = Self {
            node: Arc::clone(node),
            graph: Graph::default(),
            built_in,
            facts: Vec::new(),
            computed: HashMap::new(),
            findings: Findings::new(node, &config.anomaly).map_err(|e| e.in_file(here))?,
            predictions: Predictions::new(node, &config.prediction).map_err(|e| e.in_file(here))?,
            refused: Vec::new(),
            facts_refused: 0,
            left_to_hub: Vec::new(),
        };
        insights.apply(changes, publisher);
        for configured in &config.insight {
            if from_sql::is_for_hub(configured) {
                insights.left_to_hub.push(configured.name.clone());
                continue;
            }
            let (spec, insight) =
                from_sql::compile(node, configured).map_err(|e| e.in_file(here))?;
            let topic = spec.topic.clone();
            insights.add(spec, insight, false, publisher).map_err(|e| {
                let failure = Failure::new(format!("insight `{}` ({topic})", configured.name));
                let failure = failure.in_file(here).because(&e);
                match e.hint() {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            })?;
        }
        Ok(insights)
    }

    /// Names of configured insights that a hub computes.
    pub(crate) fn left_to_hub(&self) -> &[String] {
        &self.left_to_hub
    }

    /// What insights and findings come to so far.
    pub(crate) fn counts(&self) -> InsightCounts {
        InsightCounts {
            insights: self.computed.len() as u64,
            refused: self.refused.len() as u64,
            counter_resets: self.graph.resets(),
            rules_unmatched: self.findings.rules_unmatched(),
            findings: self.findings.watch().counts(),
            facts_refused: self.facts_refused,
            predictions_refused: self.predictions.refused(),
        }
    }

    /// Why the facts of a family, or of a part of one, are not measured; `None` once they are.
    pub(crate) fn set_missing(&mut self, what: &str, reason: Option<&str>) {
        // A part is told by a path, `cgroup/memory`: its topics lie below it.
        let graphs = match what.contains('/') {
            true => format!("{}/{what}/**", self.node),
            false => what.to_owned(),
        };
        match reason {
            Some(reason) => self.graph.set_missing(&graphs, reason),
            None => self.graph.clear_missing(&graphs),
        }
        self.built_in.set_missing(what, reason);
    }

    /// Takes what the sensor of this number yielded in its latest poll.
    pub(crate) fn take(
        &mut self,
        number: usize,
        (yielded, writers): (&Yielded, &[Option<VertexWriter>]),
        time: Timestamp,
        publisher: &Publisher,
    ) {
        let writer = |index: u32| writers.get(index as usize)?.as_ref();
        if self.facts.len() <= number {
            self.facts.resize_with(number + 1, Vec::new);
        }
        for change in &yielded.changes {
            match *change {
                Change::Came(index, metric) => {
                    let Some(writer) = writer(index) else { continue };
                    let topic = writer.topic().clone();
                    let known = self.follow(topic, metric.unit, metric.kind, publisher);
                    let facts = &mut self.facts[number];
                    facts.resize_with(facts.len().max(index as usize + 1), || None);
                    facts[index as usize] = known;
                }
                Change::Went(index) => {
                    let fact = self.facts[number].get_mut(index as usize).and_then(Option::take);
                    if let Some(fact) = fact {
                        self.unfollow(fact, publisher);
                    }
                }
            }
        }
        let Self { facts, graph, findings, predictions, .. } = self;
        for &(index, value) in &yielded.numbers {
            let Some(Some(fact)) = facts[number].get(index as usize) else { continue };
            // Of this graph and no insight: the two errors there are.
            let _ = graph.set(fact.vertex, time, value);
            if let Some(watched) = fact.watched {
                findings.observe(watched, time, value.as_f64());
            }
            if let Some(predicted) = fact.predicted {
                predictions.observe(predicted, time, value.as_f64());
            }
        }
        for (index, value) in &yielded.structured {
            let Some(Some(fact)) = self.facts[number].get(*index as usize) else { continue };
            let vertex = fact.vertex;
            let _ = self.graph.set_value(vertex, time, Value::Structured(value.clone()));
            if let (Some(text), Some(writer)) = (value.as_json().as_str(), writer(*index)) {
                let changes = self.built_in.fact(writer.topic(), Some(text));
                self.apply(changes, publisher);
            }
        }
    }

    /// A fact is there now. `None` if the graph refuses it, which is counted: it has no room, or
    /// has another of that topic. Then nobody else looks at it either.
    pub(crate) fn follow(
        &mut self,
        topic: Topic,
        unit: Unit,
        kind: Kind,
        publisher: &Publisher,
    ) -> Option<Followed> {
        let Ok(vertex) = self.graph.add_fact(topic.clone(), unit, kind) else {
            self.facts_refused += 1;
            return None;
        };
        let watched = self.findings.joined(&topic, kind);
        let predicted = self.predictions.joined(&topic, unit, kind, publisher);
        let changes = self.built_in.fact(&topic, None);
        self.apply(changes, publisher);
        Some(Followed { vertex, watched, predicted })
    }

    /// It is gone.
    pub(crate) fn unfollow(&mut self, fact: Followed, publisher: &Publisher) {
        let topic = self.graph.view(fact.vertex).map(|v| v.topic().clone());
        let _ = self.graph.remove(fact.vertex);
        self.leave(fact.watched, fact.predicted, publisher);
        if let Ok(topic) = topic {
            let changes = self.built_in.fact_gone(&topic);
            self.apply(changes, publisher);
        }
    }

    fn leave(
        &mut self,
        watched: Option<Watched>,
        predicted: Option<Predicted>,
        publisher: &Publisher,
    ) {
        if let Some(watched) = watched {
            self.findings.left(watched);
        }
        if let Some(predicted) = predicted {
            self.predictions.left(predicted, publisher);
        }
    }

    /// The value of a fact that a user publishes.
    pub(crate) fn set(&mut self, fact: &Followed, time: Timestamp, value: &Value) {
        let _ = self.graph.set_value(fact.vertex, time, value.clone());
        let Some(number) = value.as_f64() else { return };
        if let Some(watched) = fact.watched {
            self.findings.observe(watched, time, number);
        }
        if let Some(predicted) = fact.predicted {
            self.predictions.observe(predicted, time, number);
        }
    }

    /// Nothing is known from `time` on of a fact that somebody else publishes.
    pub(crate) fn set_unknown(&mut self, fact: &Followed, time: Timestamp, why: Unknown) {
        if let Some(predicted) = fact.predicted {
            self.predictions.forget(predicted, why.reason());
        }
        let _ = self.graph.set_unknown(fact.vertex, time, why);
    }

    /// Computes and publishes what has to be after what was taken.
    pub(crate) fn run(&mut self, publisher: &Publisher, at: Clock, counts: &mut Counts) {
        let now = at.wall;
        let Self { graph, computed, findings, predictions, .. } = self;
        let mut clock = skopos_shm::boottime;
        let ran = graph.run_timed(now, Some(&mut clock), &mut |of| {
            let Some(own) = computed.get_mut(&of.id) else { return };
            own.publish(&of, now, counts);
            // What was known says nothing of what is when it is known again.
            if let (true, Err(why), Some(predicted)) = (of.changed, of.outcome, own.predicted) {
                predictions.forget(predicted, why.reason());
            }
            let Some(number) = of.outcome.as_ref().ok().and_then(Value::as_f64) else { return };
            if let Some(watched) = own.watched {
                findings.observe(watched, of.checked_at, number);
            }
            if let Some(predicted) = own.predicted {
                predictions.observe(predicted, of.checked_at, number);
            }
        });
        counts.insights_run += ran.evaluated as u64;
        self.findings.publish(publisher, counts);
        self.predictions.publish(at, counts);
    }

    /// When predictions are due, on the monotonic clock; `None` if nothing is predicted.
    pub(crate) fn predictions_due(&self) -> Option<Duration> {
        self.predictions.due()
    }

    fn apply(&mut self, changes: Changes, publisher: &Publisher) {
        for topic in changes.removed {
            self.refused.retain(|refused| refused.topic != topic);
            let Some(vertex) = self.graph.find(topic.as_str()) else { continue };
            // Of the same topic may be a user's insight or fact, for which this one was refused.
            let is_own = self.computed.get(&vertex).is_some_and(|own| own.is_built_in);
            if let Some(own) = is_own.then(|| self.computed.remove(&vertex)).flatten() {
                let _ = self.graph.remove(vertex);
                publisher.unregister(&own.writer);
                self.leave(own.watched, own.predicted, publisher);
            }
        }
        for vertex in changes.added {
            let (topic, definition) = (vertex.spec.topic.clone(), vertex.definition);
            if let Err(e) = self.add(vertex.spec, vertex.insight, true, publisher) {
                self.refused.push(Refused { topic, definition, reason: e.to_string() });
            }
        }
    }

    fn add(
        &mut self,
        spec: InsightSpec,
        insight: Box<dyn Insight>,
        is_built_in: bool,
        publisher: &Publisher,
    ) -> Result<(), AddError> {
        let InsightSpec { topic, unit, kind, value_type, .. } = spec.clone();
        let place = VertexSpec::new(topic.clone(), value_type).unit(unit).kind(kind);
        let place =
            if value_type == ValueType::Structured { place.slots(RECORD_SLOTS) } else { place };
        let writer = publisher.register(place).map_err(AddError::Segment)?;
        match self.graph.add_insight(spec, insight) {
            Ok(vertex) => {
                let watched = self.findings.joined(&topic, kind);
                let predicted = self.predictions.joined(&topic, unit, kind, publisher);
                let own = Computing {
                    is_built_in,
                    writer,
                    sampled_at: Timestamp::default(),
                    stands_at: Timestamp::default(),
                    watched,
                    predicted,
                };
                self.computed.insert(vertex, own);
                Ok(())
            }
            Err(e) => {
                publisher.unregister(&writer);
                Err(AddError::Graph(e))
            }
        }
    }
}

#[cfg(test)]
mod tests;

/// Why an insight could not be added.
#[derive(Debug, thiserror::Error)]
enum AddError {
    #[error(transparent)]
    Graph(skopos_score::Error),
    #[error(transparent)]
    Segment(skopos_shm::Error),
}

impl AddError {
    /// What whoever wrote the statement can do.
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Graph(skopos_score::Error::Cycle(_)) => {
                Some("leave insights out of it: `AND topic NOT LIKE '%/insight/%'`")
            }
            Self::Graph(e) => e.hint(),
            Self::Segment(_) => None,
        }
    }
}

impl Computing {
    fn publish(&mut self, of: &Computed<'_>, now: Timestamp, counts: &mut Counts) {
        // An insight without any input that is known was never looked at.
        let looked_at = of.checked_at != Timestamp::default();
        let time = if looked_at { of.checked_at } else { now };
        if !of.changed {
            self.stands_at = self.stands_at.max(time);
            if self.writer.check_at(time).is_err() {
                counts.publish_errors += 1;
            }
            return;
        }
        // While its oldest input was not looked at again, others may have changed several times: each
        // value has a time of its own, or nobody could tell which one held last.
        let time = time.max(self.stands_at).max(self.sampled_at.saturating_add(NANOSECOND));
        self.sampled_at = time;
        let sample = match of.outcome {
            Ok(value) => Sample::measured(time, value.clone()),
            Err(why) => Sample::unknown(time, self.writer.value_type(), why.reason()),
        };
        counts.published(&self.writer.publish_sample(&sample));
    }
}
