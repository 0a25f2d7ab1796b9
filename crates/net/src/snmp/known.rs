use skopos_model::Scalar;
use skopos_model::schema::Metric;

use super::unknown::Reading;
use crate::collector::FactSink;

/// Sets a fact, or hands over the reason why it is not known.
pub(super) fn set<T: Into<Scalar>>(
    sink: &mut dyn FactSink,
    metric: &'static Metric,
    instance: &str,
    reading: Reading<T>,
) {
    match reading {
        Ok(value) => sink.set(metric, instance, value.into()),
        Err(why) => sink.set_unknown(metric, instance, &why.to_string()),
    }
}
