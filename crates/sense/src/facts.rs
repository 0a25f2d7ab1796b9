//! The facts of one thing: of the node itself, or of one instance.

use std::time::Duration;

use skopos_model::schema::{Family, Metric};
use skopos_model::{Scalar, Structured, ValueType};

use crate::sensor::{FactId, Sink, Tick};

/// The time after a refusal at which a fact is offered again. Room comes back when other things go,
/// which takes minutes, so a full sink is asked once a minute and not at each tick. The unit is
/// time and not polls, since some facts are set at every poll and others at every 256th.
const RETRY_REFUSED_SECONDS: u32 = 60;

/// The facts of one family and one instance. Each is registered when it first has a value, so a
/// fact that an old kernel or a simple device does not report is absent.
pub(crate) struct Facts {
    family: &'static Family,
    instance: Box<str>,
    /// In the order of `family.metrics`.
    places: Box<[Place]>,
    /// The likely place of the next metric: sensors set facts in the family's order.
    next: usize,
}

/// The way in which a fact has its values.
#[derive(Clone, Copy)]
enum Shape {
    Value,
    List,
}

/// The state of one metric.
#[derive(Clone, Copy)]
enum Place {
    /// It has not had a value yet.
    Empty,
    Registered(FactId),
    /// The sink had no room for it. It is offered again at this second of the tick's clock.
    Refused {
        ask_at: u32,
    },
}

impl Facts {
    /// Returns the facts of the node itself, for a `family` without instances.
    pub(crate) fn of_node(family: &'static Family) -> Self {
        Self::of(family, "")
    }

    /// Returns the facts of `instance`, which is a segment of a topic.
    pub(crate) fn of(family: &'static Family, instance: &str) -> Self {
        let places = vec![Place::Empty; family.metrics.len()].into();
        Self { family, instance: instance.into(), places, next: 0 }
    }

    /// The instance; empty for the node itself.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Hands over one fact.
    pub(crate) fn set(
        &mut self,
        tick: &mut Tick<'_>,
        metric: &'static Metric,
        value: impl Into<Scalar>,
    ) {
        let value = value.into();
        debug_assert_eq!(value.value_type(), metric.value_type, "type of {}", metric.name);
        if let Some(id) = self.registered(tick, metric, Shape::Value) {
            tick.set(id, value);
        }
    }

    /// Hands over one fact that is a text, list or record.
    pub(crate) fn set_structured(
        &mut self,
        tick: &mut Tick<'_>,
        metric: &'static Metric,
        value: &Structured,
    ) {
        debug_assert_eq!(ValueType::Structured, metric.value_type, "type of {}", metric.name);
        if let Some(id) = self.registered(tick, metric, Shape::Value) {
            tick.set_structured(id, value);
        }
    }

    /// Hands over a list of values of a metric. The instance of these facts names a list.
    pub(crate) fn set_list(
        &mut self,
        tick: &mut Tick<'_>,
        metric: &'static Metric,
        values: &[Option<Scalar>],
    ) {
        if let Some(id) = self.registered(tick, metric, Shape::List) {
            tick.set_list(id, values);
        }
    }

    /// Returns the id of the metric, and registers the metric first where that is due.
    fn registered(
        &mut self,
        tick: &mut Tick<'_>,
        metric: &'static Metric,
        shape: Shape,
    ) -> Option<FactId> {
        let Some(at) = self.position(metric) else {
            debug_assert!(false, "{} is not of the family {}", metric.name, self.family.name);
            return None;
        };
        self.next = at + 1;
        let now = seconds(tick.monotonic);
        match self.places[at] {
            Place::Registered(id) => return Some(id),
            Place::Refused { ask_at } if now < ask_at => return None,
            Place::Refused { .. } | Place::Empty => {}
        }
        let id = match shape {
            Shape::Value => tick.sink.register(metric, &self.instance),
            Shape::List => tick.sink.register_list(metric, &self.instance),
        };
        if id == FactId::REFUSED {
            let ask_at = now.saturating_add(RETRY_REFUSED_SECONDS);
            self.places[at] = Place::Refused { ask_at };
            return None;
        }
        self.places[at] = Place::Registered(id);
        Some(id)
    }

    fn position(&self, metric: &'static Metric) -> Option<usize> {
        let is_it = |m: &&'static Metric| std::ptr::eq(*m, metric);
        match self.family.metrics.get(self.next) {
            Some(expected) if is_it(expected) => Some(self.next),
            _ => self.family.metrics.iter().position(is_it),
        }
    }

    /// Removes the fact of one metric, if it is there.
    pub(crate) fn unregister_one(&mut self, sink: &mut dyn Sink, metric: &'static Metric) {
        if let Some(at) = self.position(metric) {
            self.places[at].clear(sink);
        }
    }

    /// Removes every fact. The next value of a fact registers it anew.
    pub(crate) fn unregister(&mut self, sink: &mut dyn Sink) {
        self.places.iter_mut().for_each(|place| place.clear(sink));
    }
}

impl Place {
    fn clear(&mut self, sink: &mut dyn Sink) {
        if let Self::Registered(id) = std::mem::replace(self, Self::Empty) {
            sink.unregister(id);
        }
    }
}

/// 136 years of seconds, in which a place stays as small as an id.
fn seconds(clock: Duration) -> u32 {
    u32::try_from(clock.as_secs()).unwrap_or(u32::MAX)
}
