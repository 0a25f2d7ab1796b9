//! Predicted samples, where the configuration asks for them: what a value is between two polls,
//! published beside what was measured, as `NODE/predicted/…`.
//!
//! A reader in Rust needs none of this: it predicts for itself, from the samples in the segment.

use std::sync::Arc;
use std::time::Duration;

use skopos_model::{Kind, Origin, Sample, Timestamp, Topic, TopicPattern, Unit, Value, ValueType};
use skopos_score::delphi::Predictor;
use skopos_shm::{Publisher, VertexSpec, VertexWriter};

use crate::clock::Clock;
use crate::config::PredictionConfig;
use crate::polled::nearest_beat;
use crate::sink::Counts;
use skopos_term::Failure;

/// The most topics that are predicted: each costs 4 KiB in the segment, 400 bytes here and a tenth
/// of a microsecond a prediction.
pub(super) const MAX_PREDICTED: usize = 1024;

/// How often, unless configured.
const EVERY: Duration = Duration::from_secs(1);

/// The shortest that may be configured.
const SHORTEST: Duration = Duration::from_millis(10);

/// The predictors and where their predictions go.
pub(super) struct Predictions {
    node: Arc<str>,
    patterns: Vec<TopicPattern>,
    every: Duration,
    places: Vec<Option<Place>>,
    /// When to predict next, on the monotonic clock.
    next: Duration,
    /// Topics that were to be predicted so far and had no room.
    refused: u64,
    /// True if a place has something to say that cannot wait for the next prediction.
    is_news: bool,
}

struct Place {
    kind: Kind,
    predictor: Predictor,
    writer: VertexWriter,
    /// Why there is nothing to predict from any more, until that is published.
    unknown: Option<Box<str>>,
}

/// A topic that is predicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Predicted(usize);

impl Predictions {
    /// # Errors
    /// A pattern or the time between predictions cannot be.
    pub(super) fn new(node: &Arc<str>, config: &PredictionConfig) -> Result<Self, Failure> {
        let wrong = |e: &dyn std::error::Error| Failure::new("[prediction]").because(e);
        // As on the command line, the node may be left out.
        let with_node = config.topics.iter().map(|text| format!("{node}/{text}"));
        let patterns = config.topics.iter().cloned().chain(with_node);
        let patterns = patterns.map(|text| TopicPattern::new(&text));
        let patterns = patterns.collect::<Result<_, _>>().map_err(|e| wrong(&e))?;
        let every = config.every.unwrap_or(EVERY);
        if every < SHORTEST {
            return Err(Failure::new(format!("[prediction]: `every` is {every:?}"))
                .hint("predictions are published every 10 ms at most"));
        }
        let (node, next) = (Arc::clone(node), Duration::ZERO);
        let places = Vec::new();
        Ok(Self { node, patterns, every, places, next, refused: 0, is_news: false })
    }

    /// Topics that were to be predicted so far and had no room, here or in the segment.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// A vertex of the graph is there: its place, if it is to be predicted and there is room; that
    /// there is none is counted.
    pub(super) fn joined(
        &mut self,
        topic: &Topic,
        unit: Unit,
        kind: Kind,
        publisher: &Publisher,
    ) -> Option<Predicted> {
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
    ) -> Option<Predicted> {
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
        Some(Predicted(at))
    }

    pub(super) fn left(&mut self, Predicted(at): Predicted, publisher: &Publisher) {
        if let Some(place) = self.places.get_mut(at).and_then(Option::take) {
            publisher.unregister(&place.writer);
        }
    }

    pub(super) fn observe(&mut self, Predicted(at): Predicted, time: Timestamp, value: f64) {
        if let Some(Some(place)) = self.places.get_mut(at) {
            place.predictor.observe(time, value);
        }
    }

    /// What was predicted is unknown now: predictions from what it was end, and readers are told
    /// at once. They begin anew from what is observed later.
    pub(super) fn forget(&mut self, Predicted(at): Predicted, why: &str) {
        if let Some(Some(place)) = self.places.get_mut(at) {
            place.predictor = Predictor::for_kind(place.kind);
            place.unknown = Some(why.into());
            self.is_news = true;
        }
    }

    /// When predictions are due, on the monotonic clock; `None` if nothing is predicted.
    pub(super) fn due(&self) -> Option<Duration> {
        self.places.iter().any(Option::is_some).then_some(self.next)
    }

    /// Publishes what is predicted for now, if it is due.
    pub(super) fn publish(&mut self, clock: Clock, counts: &mut Counts) {
        let now = clock.wall;
        if std::mem::take(&mut self.is_news) {
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
            let Some(said) = place.predictor.now(now) else { continue };
            let (value, bound) = (Value::F64(said.value), said.bound);
            let sample = Sample { time: now, value, origin: Origin::Predicted { bound } };
            counts.published(&place.writer.publish_sample(&sample));
        }
    }
}
