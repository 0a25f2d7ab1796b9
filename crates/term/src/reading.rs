//! One reading of one topic, as every verb prints it.

use std::time::Duration;

use serde::Serialize;
use skopos_model::{Kind, Origin, Sample, Timestamp, Topic, Unit, Value, ValueType};
use skopos_shm::Vertex;

use crate::format;

/// A predicted sample, or the reason why there is none.
pub type Now = Result<Sample, String>;

/// The JSON of a reading: `docs/json/reading.schema.json`.
#[derive(Debug, Serialize)]
pub struct ReadingJson {
    topic: String,
    value: serde_json::Value,
    /// Why there is no value, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
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
    /// What it is at this moment, if that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<NowJson>,
    publisher: PublisherJson,
}

/// A value at the moment of the reading, or why there is none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum NowJson {
    Predicted {
        value: serde_json::Value,
        time_ns: i64,
        origin: &'static str,
        /// Absent while too little is known to give one.
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
    /// Known on its own machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
}

/// Of what a reading is.
pub struct Of<'a> {
    pub topic: &'a Topic,
    pub unit: Unit,
    pub kind: Kind,
    pub value_type: ValueType,
    /// Who publishes it.
    pub segment: &'a str,
    pub pid: Option<u32>,
}

impl ReadingJson {
    pub fn new(vertex: &Vertex, sample: &Sample, checked_at: Timestamp, now: Timestamp) -> Self {
        let info = vertex.info();
        let of = Of {
            topic: &info.topic,
            unit: info.unit,
            kind: info.kind,
            value_type: info.value_type,
            segment: vertex.segment().name(),
            pid: Some(vertex.segment().pid()),
        };
        Self::of(&of, sample, checked_at, now.since(checked_at))
    }

    /// As [`new`](Self::new), of what need not be on this machine.
    pub fn of(of: &Of<'_>, sample: &Sample, checked_at: Timestamp, age: Duration) -> Self {
        let (origin, bound) = match sample.origin {
            Origin::Measured => ("measured", None),
            Origin::Predicted { bound } => ("predicted", Some(bound)),
            Origin::Unknown => ("unknown", None),
        };
        Self {
            topic: of.topic.to_string(),
            value: known(sample).map_or(serde_json::Value::Null, Value::to_json),
            reason: reason(sample),
            value_type: of.value_type.name(),
            unit: of.unit.to_string(),
            kind: of.kind.name(),
            time: sample.time.to_string(),
            time_ns: sample.time.as_nanos(),
            checked_at_ns: checked_at.as_nanos(),
            age_seconds: age.as_secs_f64(),
            origin,
            bound,
            now: None,
            publisher: PublisherJson { segment: of.segment.to_owned(), pid: of.pid },
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

    /// With what it is at this moment, if that was asked.
    pub fn with_now(mut self, now: Option<&Now>) -> Self {
        self.now = now.map(NowJson::new);
        self
    }
}

impl NowJson {
    fn new(now: &Now) -> Self {
        match now {
            Err(reason) => Self::Unknown { reason: reason.clone() },
            Ok(said) => Self::Predicted {
                value: said.value.to_json(),
                time_ns: said.time.as_nanos(),
                origin: "predicted",
                bound: match said.origin {
                    Origin::Predicted { bound } if bound.is_finite() => Some(bound),
                    _ => None,
                },
            },
        }
    }
}

/// The value as people read it; `unknown` and why if there is none.
pub fn value(sample: &Sample, unit: Unit) -> String {
    match (known(sample), reason(sample)) {
        (Some(value), _) => format::value(value, unit),
        (None, Some(reason)) => format!("unknown: {reason}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// The value, unless it is unknown.
fn known(sample: &Sample) -> Option<&Value> {
    (sample.origin != Origin::Unknown).then_some(&sample.value)
}

fn reason(sample: &Sample) -> Option<String> {
    match (&sample.value, sample.origin) {
        (Value::Structured(text), Origin::Unknown) => text.as_json().as_str().map(str::to_owned),
        _ => None,
    }
}

/// `measured`, `unknown`, `predicted ± bound`, or `predicted, no bound`.
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
