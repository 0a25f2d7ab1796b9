//! Insights, findings and predictions, which the agent computes from facts.
//!
//! Each fact of a sensor or user is a vertex of the graph. After each tick the graph runs, and the agent
//! publishes its results like facts: an insight under `insight/`, a finding under `anomaly/`, a prediction under
//! `predicted/`.

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
use predictions::{PredictedTopic, Predictions};

/// Ring length of an insight with records: sixteen fill the bytes of a vertex.
const RECORD_SLOTS: u32 = 16;

/// Least time between two values of an insight.
const NANOSECOND: Duration = Duration::from_nanos(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The graph with its detectors and predictors.
pub(crate) struct Insights {
    node: Arc<str>,
    graph: Graph,
    built_in: BuiltIn,
    /// The facts by the number of their sensor and their index in its table.
    facts: Vec<Vec<Option<TrackedFact>>>,
    computed: HashMap<VertexId, PublishedInsight>,
    findings: Findings,
    predictions: Predictions,
    /// Built-in insights that could not be added.
    refused: Vec<RefusedInsight>,
    /// Number of facts that the graph has refused so far.
    facts_refused: u64,
    /// Names of configured insights that a hub computes.
    left_to_hub: Vec<String>,
}

/// A fact in the graph, with its detectors and predictor.
#[derive(Debug)]
pub(crate) struct TrackedFact {
    vertex: VertexId,
    watched: Option<Watched>,
    predicted: Option<PredictedTopic>,
}

/// An insight's vertex in the segment, with its detectors and predictor.
struct PublishedInsight {
    /// False for a configured insight, which stays when facts are removed.
    is_built_in: bool,
    writer: VertexWriter,
    /// Time of its latest sample.
    sampled_at: Timestamp,
    /// The latest time that was published as its `checked_at`.
    stands_at: Timestamp,
    watched: Option<Watched>,
    predicted: Option<PredictedTopic>,
}

/// A built-in insight that could not be added.
struct RefusedInsight {
    topic: Topic,
    definition: &'static Definition,
    reason: String,
}

/// The counts of insights, findings and predictions so far.
pub(crate) struct InsightCounts {
    /// Number of insights.
    pub insights: u64,
    /// Number of insights for which there was no room.
    pub refused: u64,
    /// Number of resets of counters.
    pub counter_resets: u64,
    /// Number of configured anomaly rules without a matching topic.
    pub rules_unmatched: u64,
    /// The counts of the detectors.
    pub findings: skopos_score::anomaly::Counts,
    /// Number of facts that the graph refused, so that insights do not use them.
    pub facts_refused: u64,
    /// Number of topics that cannot be predicted for lack of room.
    pub predictions_refused: u64,
}

impl Insights {
    /// Makes the built-in and the configured insights.
    ///
    /// # Errors
    /// An insight, rule or pattern of the configuration is not valid.
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

    /// Returns the names of configured insights that a hub computes.
    pub(crate) fn left_to_hub(&self) -> &[String] {
        &self.left_to_hub
    }

    /// Returns the counts so far.
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

    /// Sets the reason why the facts of a family, or of a part of one, are not measured; `None` once they are.
    pub(crate) fn set_missing(&mut self, what: &str, reason: Option<&str>) {
        // A part is a path such as `cgroup/memory`, above its topics.
        let pattern = match what.contains('/') {
            true => format!("{}/{what}/**", self.node),
            false => what.to_owned(),
        };
        match reason {
            Some(reason) => self.graph.set_missing(&pattern, reason),
            None => self.graph.clear_missing(&pattern),
        }
        self.built_in.set_missing(what, reason);
    }

    /// Takes the values of the latest poll of the sensor with this number.
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
                Change::Added(index, metric) => {
                    let Some(writer) = writer(index) else { continue };
                    let topic = writer.topic().clone();
                    let tracked = self.follow(topic, metric.unit, metric.kind, publisher);
                    let facts = &mut self.facts[number];
                    facts.resize_with(facts.len().max(index as usize + 1), || None);
                    facts[index as usize] = tracked;
                }
                Change::Removed(index) => {
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
            // Fails only for an insight or a vertex of another graph.
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

    /// Adds a fact to the graph. `None` if the graph refuses and counts it, because it is full or has a vertex of
    /// that topic. Detectors and predictors do not see a refused fact.
    pub(crate) fn follow(
        &mut self,
        topic: Topic,
        unit: Unit,
        kind: Kind,
        publisher: &Publisher,
    ) -> Option<TrackedFact> {
        let Ok(vertex) = self.graph.add_fact(topic.clone(), unit, kind) else {
            self.facts_refused += 1;
            return None;
        };
        let watched = self.findings.joined(&topic, kind);
        let predicted = self.predictions.joined(&topic, unit, kind, publisher);
        let changes = self.built_in.fact(&topic, None);
        self.apply(changes, publisher);
        Some(TrackedFact { vertex, watched, predicted })
    }

    /// Removes a fact from the graph.
    pub(crate) fn unfollow(&mut self, fact: TrackedFact, publisher: &Publisher) {
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
        predicted: Option<PredictedTopic>,
        publisher: &Publisher,
    ) {
        if let Some(watched) = watched {
            self.findings.left(watched);
        }
        if let Some(predicted) = predicted {
            self.predictions.left(predicted, publisher);
        }
    }

    /// Keeps the ages of all values when the clock was set back by `by`.
    pub(crate) fn clock_set_back(&mut self, by: Duration) {
        self.graph.clock_set_back(by);
    }

    /// Sets the value of a fact that a user or another process publishes.
    pub(crate) fn set(&mut self, fact: &TrackedFact, time: Timestamp, value: &Value) {
        let _ = self.graph.set_value(fact.vertex, time, value.clone());
        let Some(number) = value.as_f64() else { return };
        if let Some(watched) = fact.watched {
            self.findings.observe(watched, time, number);
        }
        if let Some(predicted) = fact.predicted {
            self.predictions.observe(predicted, time, number);
        }
    }

    /// Makes a fact of another process unknown from `time` on.
    pub(crate) fn set_unknown(&mut self, fact: &TrackedFact, time: Timestamp, why: Unknown) {
        if let Some(predicted) = fact.predicted {
            self.predictions.forget(predicted, why.reason());
        }
        let _ = self.graph.set_unknown(fact.vertex, time, why);
    }

    /// Evaluates the insights whose inputs changed, and publishes the results.
    pub(crate) fn run(&mut self, publisher: &Publisher, at: Clock, counts: &mut Counts) {
        let now = at.wall;
        let Self { graph, computed, findings, predictions, .. } = self;
        let mut clock = skopos_shm::boottime;
        let ran = graph.run_timed(now, Some(&mut clock), &mut |result| {
            let Some(own) = computed.get_mut(&result.id) else { return };
            own.publish(&result, now, counts);
            // Values from before the gap cannot predict values after it.
            if let (true, Err(why), Some(predicted)) =
                (result.changed, result.outcome, own.predicted)
            {
                predictions.forget(predicted, why.reason());
            }
            let Some(number) = result.outcome.as_ref().ok().and_then(Value::as_f64) else { return };
            if let Some(watched) = own.watched {
                findings.observe(watched, result.checked_at, number);
            }
            if let Some(predicted) = own.predicted {
                predictions.observe(predicted, result.checked_at, number);
            }
        });
        counts.insights_run += ran.evaluated as u64;
        self.findings.publish(publisher, counts);
        self.predictions.publish(at, counts);
    }

    /// Returns the time of the next predictions, on the monotonic clock; `None` without predicted topics.
    pub(crate) fn predictions_due(&self) -> Option<Duration> {
        self.predictions.due()
    }

    fn apply(&mut self, changes: Changes, publisher: &Publisher) {
        for topic in changes.removed {
            self.refused.retain(|refused| refused.topic != topic);
            let Some(vertex) = self.graph.find(topic.as_str()) else { continue };
            // A user's insight or fact may have this topic, because of which the built-in one was refused.
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
                self.refused.push(RefusedInsight { topic, definition, reason: e.to_string() });
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
                let own = PublishedInsight {
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

/// The reason why an insight could not be added.
#[derive(Debug, thiserror::Error)]
enum AddError {
    #[error(transparent)]
    Graph(skopos_score::Error),
    #[error(transparent)]
    Segment(skopos_shm::Error),
}

impl AddError {
    /// Returns a hint for the author of the statement.
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

impl PublishedInsight {
    fn publish(&mut self, result: &Computed<'_>, now: Timestamp, counts: &mut Counts) {
        // An insight without any known input has no poll time.
        let has_time = result.checked_at != Timestamp::default();
        let time = if has_time { result.checked_at } else { now };
        if !result.changed {
            self.stands_at = self.stands_at.max(time);
            if self.writer.check_at(time).is_err() {
                counts.publish_errors += 1;
            }
            return;
        }
        // Other inputs may have changed several times since the last poll of the oldest input. Each value has a
        // time of its own, so that the order of the values is known: also in a store that counts milliseconds, unless
        // the next of them has not come yet.
        let next = |after: Duration| self.sampled_at.saturating_add(after);
        let apart = next(MILLISECOND).min(now.max(next(NANOSECOND)));
        // The age is that of the oldest input all the same, also after the clock was set back.
        let checked_at = time;
        let time = time.max(self.stands_at).max(apart);
        self.sampled_at = time;
        let sample = match result.outcome {
            Ok(value) => Sample::measured(time, value.clone()),
            Err(why) => Sample::unknown(time, self.writer.value_type(), why.reason()),
        };
        counts.published(&self.writer.publish_sample_of(&sample, checked_at));
    }
}
