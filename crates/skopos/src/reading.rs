//! One reading of one topic, as every verb prints it.

use serde::Serialize;
use skopos_model::{Origin, Sample, Timestamp};
use skopos_shm::Vertex;

use crate::format;

/// The JSON of a reading: `docs/json/reading.schema.json`.
#[derive(Debug, Serialize)]
pub(crate) struct ReadingJson {
    topic: String,
    value: serde_json::Value,
    value_type: &'static str,
    unit: String,
    kind: &'static str,
    /// When the value was measured first: since then it has been this one.
    time: String,
    time_ns: i64,
    /// When the source was last looked at.
    checked_at_ns: i64,
    age_seconds: f64,
    origin: &'static str,
    /// Error bound of a predicted value.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<f64>,
    publisher: PublisherJson,
}

#[derive(Debug, Serialize)]
struct PublisherJson {
    segment: String,
    pid: u32,
}

impl ReadingJson {
    pub(crate) fn new(
        vertex: &Vertex,
        sample: &Sample,
        checked_at: Timestamp,
        now: Timestamp,
    ) -> Self {
        let info = vertex.info();
        let (origin, bound) = match sample.origin {
            Origin::Measured => ("measured", None),
            Origin::Predicted { bound } => ("predicted", Some(bound)),
        };
        Self {
            topic: info.topic.to_string(),
            value: sample.value.to_json(),
            value_type: info.value_type.name(),
            unit: info.unit.to_string(),
            kind: info.kind.name(),
            time: sample.time.to_string(),
            time_ns: sample.time.as_nanos(),
            checked_at_ns: checked_at.as_nanos(),
            age_seconds: now.since(checked_at).as_secs_f64(),
            origin,
            bound,
            publisher: PublisherJson {
                segment: vertex.segment().name().to_owned(),
                pid: vertex.segment().pid(),
            },
        }
    }
}

/// `measured`, or `predicted ± bound`.
pub(crate) fn origin(sample: &Sample, vertex: &Vertex) -> String {
    match sample.origin {
        Origin::Measured => "measured".to_owned(),
        Origin::Predicted { bound } => {
            format!("predicted ± {}", format::value(&bound_value(bound), vertex.info().unit))
        }
    }
}

fn bound_value(bound: f64) -> skopos_model::Value {
    skopos_model::Value::F64(bound)
}
