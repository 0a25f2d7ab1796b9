//! Predicted samples for the topics that the configuration names: values between two polls, published as
//! `NODE/predicted/…` beside the measured ones.
//!
//! A reader in Rust does not need them: it can predict by itself from the samples in the segment.

use std::sync::Arc;
use std::time::Duration;

use skopos_model::{Kind, Origin, Sample, Timestamp, Topic, TopicPattern, Unit, Value, ValueType};
use skopos_score::delphi::Predictor;
use skopos_shm::{Publisher, VertexSpec, VertexWriter};

use crate::beat::nearest_beat;
use crate::clock::Clock;
use crate::config::PredictionConfig;
use crate::sink::Counts;
use skopos_term::Failure;

/// Largest number of predicted topics: each costs 4 KiB in the segment, 400 bytes here, and a tenth of a
/// microsecond for each prediction.
pub(super) const MAX_PREDICTED: usize = 1024;

/// Default time between two predictions.
const EVERY: Duration = Duration::from_secs(1);

/// Shortest time between two predictions.
const SHORTEST: Duration = Duration::from_millis(10);

/// The predictors and the vertices of their predictions.
pub(super) struct Predictions {
    node: Arc<str>,
    patterns: Vec<TopicPattern>,
    every: Duration,
    places: Vec<Option<Place>>,
    /// Time of the next predictions, on the monotonic clock.
    next: Duration,
    /// Number of topics that could not be predicted so far for lack of room.
    refused: u64,
    /// True if a topic became unknown, which is published before the next predictions.
    has_unknown: bool,
}

struct Place {
    kind: Kind,
    predictor: Predictor,
    writer: VertexWriter,
    /// The reason why the topic became unknown, until it is published.
    unknown: Option<Box<str>>,
}

/// A topic that is predicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct PredictedTopic(usize);

impl Predictions {
    /// Reads the table `[prediction]`.
    ///
    /// # Errors
    /// A pattern, or the time between predictions, is not valid.
    pub(super) fn new(node: &Arc<str>, config: &PredictionConfig) -> Result<Self, Failure> {
        let wrong = |e: &dyn std::error::Error| Failure::new("[prediction]").because(e);
        // The node may be omitted, like on the command line.
        let with_node = config.topics.iter().map(|text| format!("{node}/{text}"));
        let patterns = config.topics.iter().cloned().chain(with_node);
        let patterns = patterns.map(|text| TopicPattern::new(&text));
        let patterns = patterns.collect::<Result<_, _>>().map_err(|e| wrong(&e))?;
        let every = config.every.unwrap_or(EVERY);
        if every < SHORTEST {
            return Err(Failure::new(format!("[prediction]: `every` is {every:?}"))
                .hint("the shortest time between predictions is 10 ms"));
        }
        let (node, next) = (Arc::clone(node), Duration::ZERO);
        let places = Vec::new();
        Ok(Self { node, patterns, every, places, next, refused: 0, has_unknown: false })
    }

    /// Returns the number of topics that could not be predicted so far, for lack of room here or in the segment.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Adds a vertex of the graph. Returns its predictor if a pattern matches and there is room; lack of room is
    /// counted.
    pub(super) fn joined(
        &mut self,
        topic: &Topic,
        unit: Unit,
        kind: Kind,
        publisher: &Publisher,
    ) -> Option<PredictedTopic> {
        if !self.patterns.iter().any(|pattern| pattern.matches(topic)) {
            return None;
        }
        let below_node = topic.as_str().strip_prefix(&*self.node)?.strip_prefix('/')?;
        let place = self.place(below_node, unit, kind, publisher);
        self.refused += u64::from(place.is_none());
        place
    }

    fn place(
        &mut self,
        below_node: &str,
        unit: Unit,
        kind: Kind,
        publisher: &Publisher,
    ) -> Option<PredictedTopic> {
        let at = match self.places.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.places.len() < MAX_PREDICTED => {
                self.places.push(None);
                self.places.len() - 1
            }
            None => return None,
        };
        let topic = Topic::new(&format!("{}/predicted/{below_node}", self.node)).ok()?;
        let spec = VertexSpec::new(topic, ValueType::F64).unit(unit).kind(kind);
        let writer = publisher.register(spec).ok()?;
        let predictor = Predictor::for_kind(kind);
        self.places[at] = Some(Place { kind, predictor, writer, unknown: None });
        Some(PredictedTopic(at))
    }

    pub(super) fn left(&mut self, PredictedTopic(at): PredictedTopic, publisher: &Publisher) {
        if let Some(place) = self.places.get_mut(at).and_then(Option::take) {
            publisher.unregister(&place.writer);
        }
    }

    pub(super) fn observe(
        &mut self,
        PredictedTopic(at): PredictedTopic,
        time: Timestamp,
        value: f64,
    ) {
        if let Some(Some(place)) = self.places.get_mut(at) {
            place.predictor.observe(time, value);
        }
    }

    /// Makes a predicted topic unknown, which is published at once. Its predictions begin again with later
    /// observations.
    pub(super) fn forget(&mut self, PredictedTopic(at): PredictedTopic, why: &str) {
        if let Some(Some(place)) = self.places.get_mut(at) {
            place.predictor = Predictor::for_kind(place.kind);
            place.unknown = Some(why.into());
            self.has_unknown = true;
        }
    }

    /// Returns the time of the next predictions, on the monotonic clock; `None` without predicted topics.
    pub(super) fn due(&self) -> Option<Duration> {
        self.places.iter().any(Option::is_some).then_some(self.next)
    }

    /// Publishes predictions for now, if they are due.
    pub(super) fn publish(&mut self, clock: Clock, counts: &mut Counts) {
        let now = clock.wall;
        if std::mem::take(&mut self.has_unknown) {
            for place in self.places.iter_mut().flatten() {
                let Some(why) = place.unknown.take() else { continue };
                let sample = Sample::unknown(now, ValueType::F64, &why);
                counts.published(&place.writer.publish_sample(&sample));
            }
        }
        if clock.monotonic < self.next {
            return;
        }
        // On the beat, so that predictions share their wake with sensors.
        self.next = nearest_beat(clock.monotonic + self.every, self.every);
        for place in self.places.iter().flatten() {
            let Some(prediction) = place.predictor.now(now) else { continue };
            let (value, bound) = (Value::F64(prediction.value), prediction.bound);
            let sample = Sample { time: now, value, origin: Origin::Predicted { bound } };
            counts.published(&place.writer.publish_sample(&sample));
        }
    }
}
