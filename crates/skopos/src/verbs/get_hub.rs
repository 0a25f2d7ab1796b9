//! `skopos get` of topics that are not in this machine's memory: the hub of this machine mirrors other nodes.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value as Json;
use skopos_model::{Origin, Sample, Timestamp, Unit, Value, ValueType};

use super::lookup::{Document, Lookup, Read, RefusedTopic};
use skopos_hub::client::{get, reach};
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::tell;

/// Timeout of a request to the hub, which waits for other nodes, and for an agent that may not answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// The response of a hub.
#[derive(Deserialize)]
struct Readings {
    readings: Vec<Json>,
    refused: Vec<RefusedJson>,
}

#[derive(Deserialize)]
struct RefusedJson {
    topic: String,
    reason: String,
}

/// The fields of a reading that are printed for people.
#[derive(Deserialize)]
struct Reading {
    topic: String,
    value: Json,
    reason: Option<String>,
    value_type: String,
    unit: String,
    time_ns: i64,
    age_seconds: f64,
    origin: String,
    bound: Option<f64>,
}

/// Asks the hub of this runtime directory.
///
/// # Errors
/// `without`, if there is no hub; the error of the hub.
pub(super) fn ask(
    global: &Global,
    topics: &[String],
    (max_age, with_now): (Option<Duration>, bool),
    without: Failure,
) -> Result<Lookup, Failure> {
    let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
    let stream = match reach(&dir, PATIENCE) {
        Ok(Some(stream)) => stream,
        Ok(None) => return Err(without),
        Err(hub) => {
            tell(format!("warning: {}", hub.in_one_line()));
            return Err(without);
        }
    };
    let failed = |e: &dyn std::error::Error| {
        Failure::new("the response of the hub does not fit the request").because(e)
    };
    let answer = get(&stream, topics, max_age)?;
    let Readings { readings, refused } = serde_json::from_value(answer).map_err(|e| failed(&e))?;
    let refused =
        refused.into_iter().map(|RefusedJson { topic, reason }| RefusedTopic { topic, reason });
    let reads = readings.into_iter().map(|json| {
        let reading = Reading::deserialize(&json).map_err(|e| failed(&e))?;
        reading.read(json, with_now).map_err(|e| failed(&*e))
    });
    Ok(Lookup { reads: reads.collect::<Result<_, _>>()?, refused: refused.collect() })
}

impl Reading {
    /// Converts the reading to the form of a value that was read here.
    fn read(self, mut json: Json, now: bool) -> Result<Read, Box<dyn std::error::Error>> {
        let (time, value_type) = (Timestamp::from_nanos(self.time_ns), self.value_type.parse()?);
        let bound = self.bound.unwrap_or(f64::INFINITY);
        let sample = match self.origin.as_str() {
            "unknown" => Sample::unknown(time, value_type, &self.reason.unwrap_or_default()),
            "predicted" => {
                let (value, origin) =
                    (of_json(&self.value, value_type)?, Origin::Predicted { bound });
                Sample { time, value, origin }
            }
            _ => Sample::measured(time, of_json(&self.value, value_type)?),
        };
        let why = "a prediction needs the samples, which are in the memory of another machine";
        if now {
            json["now"] = serde_json::json!({ "reason": why });
        }
        Ok(Read {
            topic: self.topic.parse()?,
            unit: Unit::new(&self.unit)?,
            sample,
            age: Duration::try_from_secs_f64(self.age_seconds)?,
            now: now.then(|| Err(why.to_owned())),
            document: Document::OfHub(json),
        })
    }
}

fn of_json(value: &Json, value_type: ValueType) -> Result<Value, skopos_model::Error> {
    value_type.parse_value(&value.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reading_of_a_hub_is_shown_like_one_of_this_machine() {
        let read = |value: Json, value_type: &str, origin: &str, more: Json| {
            let mut json = json!({
                "topic": "n02/a/b", "value": value, "value_type": value_type, "unit": "bytes",
                "time_ns": 7, "age_seconds": 0.5, "origin": origin,
            });
            more.as_object()
                .into_iter()
                .flatten()
                .for_each(|(key, value)| json[key] = value.clone());
            let reading = Reading::deserialize(&json).expect("a reading");
            let read = reading.read(json, false).expect("a sample");
            assert_eq!((read.topic.as_str(), read.unit.as_str()), ("n02/a/b", "bytes"));
            assert_eq!(read.age, Duration::from_millis(500));
            read.sample
        };
        let at = Timestamp::from_nanos(7);
        let largest = read(json!(u64::MAX), "u64", "measured", json!({}));
        assert_eq!(largest, Sample::measured(at, Value::U64(u64::MAX)));
        let low = read(json!(-3), "i64", "measured", json!({}));
        assert_eq!(low, Sample::measured(at, Value::I64(-3)));
        let predicted = read(json!(1.5), "f64", "predicted", json!({"bound": 0.25}));
        assert_eq!(predicted.origin, Origin::Predicted { bound: 0.25 });
        let unknown = read(json!(null), "f64", "unknown", json!({}));
        assert_eq!(unknown.origin, Origin::Unknown);
        let list = read(json!([1, {"a": null}]), "structured", "measured", json!({}));
        assert_eq!(list.value.to_json(), json!([1, {"a": null}]));
    }
}
