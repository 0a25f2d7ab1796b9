//! The facts of one thing: of the node itself, or of one instance.

use skopos_model::Scalar;
use skopos_model::schema::{Family, Metric};

use crate::{FactId, Sink, Tick};

/// Facts of one family and one instance. Each is registered when it first has a value, so that
/// what an old kernel or a simple device does not tell is absent and not an empty promise.
pub(crate) struct Facts {
    family: &'static Family,
    instance: Box<str>,
    /// In the order of `family.metrics`.
    ids: Box<[Option<FactId>]>,
    /// Where the next metric most likely stands: sensors hand facts over in the family's order.
    next: usize,
}

impl Facts {
    /// Facts of the node itself, in a `family` without instances.
    pub(crate) fn of_node(family: &'static Family) -> Self {
        Self::of(family, "")
    }

    /// Facts of `instance`, which is a topic's segment.
    pub(crate) fn of(family: &'static Family, instance: &str) -> Self {
        let ids = vec![None; family.metrics.len()].into();
        Self { family, instance: instance.into(), ids, next: 0 }
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
        let Some(at) = self.position(metric) else {
            debug_assert!(false, "{} is not of the family {}", metric.name, self.family.name);
            return;
        };
        self.next = at + 1;
        let id = *self.ids[at].get_or_insert_with(|| tick.sink.register(metric, &self.instance));
        tick.set(id, value);
    }

    fn position(&self, metric: &'static Metric) -> Option<usize> {
        let is_it = |m: &&'static Metric| std::ptr::eq(*m, metric);
        match self.family.metrics.get(self.next) {
            Some(expected) if is_it(expected) => Some(self.next),
            _ => self.family.metrics.iter().position(is_it),
        }
    }

    /// Takes away the fact of one metric, if it is there.
    pub(crate) fn unregister_one(&mut self, sink: &mut dyn Sink, metric: &'static Metric) {
        let id = self.position(metric).and_then(|at| self.ids[at].take());
        if let Some(id) = id.filter(|&id| id != FactId::REFUSED) {
            sink.unregister(id);
        }
    }

    /// Takes every fact away; the next value of one registers it anew.
    pub(crate) fn unregister(&mut self, sink: &mut dyn Sink) {
        for id in self.ids.iter_mut().filter_map(Option::take) {
            if id != FactId::REFUSED {
                sink.unregister(id);
            }
        }
    }
}
