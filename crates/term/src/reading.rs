//! A reading of a topic, in the format that all verbs print.

use std::time::Duration;

use serde::Serialize;
use skopos_model::{Kind, Origin, Sample, Timestamp, Topic, Unit, Value, ValueType};
use skopos_shm::Vertex;

use crate::format;

/// A predicted sample, or the reason why it cannot be predicted.
pub type Prediction = Result<Sample, String>;

/// The JSON of a reading: `docs/json/reading.schema.json`.
#[derive(Debug, Serialize)]
pub struct ReadingJson {
    topic: String,
    value: serde_json::Value,
    /// The reason why the value is unknown. Only structured vertices can carry it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    value_type: &'static str,
    unit: String,
    kind: &'static str,
    /// The time of the first measurement of this value, which has held since then.
    time: String,
    time_ns: i64,
    /// The time of the last poll of the source.
    checked_at_ns: i64,
    age_seconds: f64,
    origin: &'static str,
    /// Error bound of a predicted value.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<f64>,
    /// The predicted value at this moment, if the user asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<NowJson>,
    publisher: PublisherJson,
}

/// The predicted value at the moment of the reading, or the reason why it is unknown.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum NowJson {
    Predicted {
        value: serde_json::Value,
        time_ns: i64,
        origin: &'static str,
        /// Absent while the predictor has too few samples for a bound.
        #[serde(skip_serializing_if = "Option::is_none")]
        bound: Option<f64>,
    },
    Unknown {
        reason: String,
    },
}

#[derive(Debug, Serialize)]
struct PublisherJson {
    segment: String,
    /// The process id, which is known on the publisher's machine only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
}

/// The topic of a reading and its publisher.
pub struct ReadingSource<'a> {
    /// The topic.
    pub topic: &'a Topic,
    /// The unit of its values.
    pub unit: Unit,
    /// Counter, gauge or state.
    pub kind: Kind,
    /// The type of its values.
    pub value_type: ValueType,
    /// The name of the segment that holds it.
    pub segment: &'a str,
    /// The publisher's process id, if the publisher runs on this machine.
    pub pid: Option<u32>,
}

impl ReadingJson {
    /// Makes the JSON of a sample of a vertex in shared memory, of which the source was polled `age` ago.
    pub fn new(vertex: &Vertex, sample: &Sample, checked_at: Timestamp, age: Duration) -> Self {
        let info = vertex.info();
        let source = ReadingSource {
            topic: &info.topic,
            unit: info.unit,
            kind: info.kind,
            value_type: info.value_type,
            segment: vertex.segment().name(),
            pid: Some(vertex.segment().pid()),
        };
        Self::from_source(&source, sample, checked_at, age)
    }

    /// Makes the JSON of a sample of any source, also of another machine.
    pub fn from_source(
        source: &ReadingSource<'_>,
        sample: &Sample,
        checked_at: Timestamp,
        age: Duration,
    ) -> Self {
        let (origin, bound) = match sample.origin {
            Origin::Measured => ("measured", None),
            Origin::Predicted { bound } => ("predicted", Some(bound)),
            Origin::Unknown => ("unknown", None),
        };
        Self {
            topic: source.topic.to_string(),
            value: known(sample).map_or(serde_json::Value::Null, Value::to_json),
            reason: reason(sample),
            value_type: source.value_type.name(),
            unit: source.unit.to_string(),
            kind: source.kind.name(),
            time: sample.time.to_string(),
            time_ns: sample.time.as_nanos(),
            checked_at_ns: checked_at.as_nanos(),
            age_seconds: age.as_secs_f64(),
            origin,
            bound,
            now: None,
            publisher: PublisherJson { segment: source.segment.to_owned(), pid: source.pid },
        }
    }

    /// Sets the reason of an unknown value that does not carry one.
    #[must_use]
    pub fn with_reason(mut self, reason: impl FnOnce() -> Option<String>) -> Self {
        if self.origin == "unknown" && self.reason.is_none() {
            self.reason = reason();
        }
        self
    }

    /// Adds the predicted value at this moment, if the user asked for it.
    pub fn with_now(mut self, now: Option<&Prediction>) -> Self {
        self.now = now.map(NowJson::new);
        self
    }
}

impl NowJson {
    fn new(now: &Prediction) -> Self {
        match now {
            Err(reason) => Self::Unknown { reason: reason.clone() },
            Ok(sample) => Self::Predicted {
                value: sample.value.to_json(),
                time_ns: sample.time.as_nanos(),
                origin: "predicted",
                bound: match sample.origin {
                    Origin::Predicted { bound } if bound.is_finite() => Some(bound),
                    _ => None,
                },
            },
        }
    }
}

/// Formats the value for people. An unknown value is shown as `unknown` with its reason.
pub fn value(sample: &Sample, unit: Unit) -> String {
    match (known(sample), reason(sample)) {
        (Some(value), _) => format::value(value, unit),
        (None, Some(reason)) => format!("unknown: {reason}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// Returns the value, or `None` if it is unknown.
fn known(sample: &Sample) -> Option<&Value> {
    (sample.origin != Origin::Unknown).then_some(&sample.value)
}

fn reason(sample: &Sample) -> Option<String> {
    match (&sample.value, sample.origin) {
        (Value::Structured(text), Origin::Unknown) => text.as_json().as_str().map(str::to_owned),
        _ => None,
    }
}

/// Formats the origin: `measured`, `unknown`, `predicted ± bound`, or `predicted, no bound`.
pub fn origin(sample: &Sample, unit: Unit) -> String {
    match sample.origin {
        Origin::Measured => "measured".to_owned(),
        Origin::Unknown => "unknown".to_owned(),
        Origin::Predicted { bound } if bound.is_infinite() => "predicted, no bound".to_owned(),
        Origin::Predicted { bound } => {
            format!("predicted ± {}", format::value(&Value::F64(bound), unit))
        }
    }
}
