//! The destination of facts, which the program around the collector gives.

use skopos_model::schema::{Family, Metric};
use skopos_model::{Scalar, Structured};

/// The destination of facts.
pub trait FactSink {
    /// Sets a fact. `instance` is a segment of a topic, and empty for a family without instances.
    fn set(&mut self, metric: &'static Metric, instance: &str, value: Scalar);

    /// Sets a fact that is a list.
    fn set_structured(&mut self, metric: &'static Metric, instance: &str, value: &Structured);

    /// Says that a fact is not known now, and the reason. A sink that keeps no reasons leaves the fact as old as it is.
    fn set_unknown(&mut self, metric: &'static Metric, instance: &str, reason: &str) {
        let _ = (metric, instance, reason);
    }

    /// Removes the facts of an instance that is gone.
    fn remove(&mut self, family: &'static Family, instance: &str);
}

/// Sets a fact that is known.
pub(super) fn set_known<T: Into<Scalar>>(
    sink: &mut dyn FactSink,
    metric: &'static Metric,
    instance: &str,
    value: Option<T>,
) {
    if let Some(value) = value {
        sink.set(metric, instance, value.into());
    }
}
