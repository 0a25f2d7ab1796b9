//! `GET /api/v1/get?topic=…`: latest values, once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use serde::Serialize;
use skopos_model::{Topic, duration};
use skopos_query::{Row, Source};

use super::topics::{self, json, nearest, parameters, unknown};
use super::{Desk, Refusal};
use crate::reading::ReadingJson;

/// `Readings` in `docs/openapi.json`.
#[derive(Serialize)]
pub(super) struct Readings {
    readings: Vec<ReadingJson>,
    /// Topics without a value that may be shown, each with its reason.
    refused: Vec<Refused>,
}

#[derive(Serialize)]
struct Refused {
    topic: String,
    reason: String,
}

pub(super) async fn answer(
    State(desk): State<Arc<Desk>>,
    uri: Uri,
) -> Result<Json<Readings>, Refusal> {
    let (mut texts, mut max_age) = (Vec::new(), None);
    for (name, value) in parameters(&uri)? {
        match name.as_str() {
            "topic" => texts.push(value),
            "max_age" => max_age = Some(topics::time(&value)?),
            other => return Err(unknown(other, "`topic` and `max_age`")),
        }
    }
    if texts.is_empty() {
        return Err(Refusal::bad("no topic is asked for").hint("say `?topic=mem/available_bytes`"));
    }
    read(&*desk.inside.source, &texts, max_age).map(Json)
}

fn read(
    source: &dyn Source,
    texts: &[String],
    max_age: Option<Duration>,
) -> Result<Readings, Refusal> {
    let now = source.now();
    // Each topic once, in order.
    let mut readings: BTreeMap<Topic, Result<ReadingJson, String>> = BTreeMap::new();
    let (mut missing, mut first) = (Vec::new(), None);
    for text in texts {
        let Some(pattern) = topics::reading(source, text)? else {
            first.get_or_insert(text);
            missing.push(Refused { topic: text.clone(), reason: "no topic matches".to_owned() });
            continue;
        };
        let wanted = topics::wanted(&pattern);
        source.topics(&wanted, &mut |described| {
            if pattern.matches(described.topic) {
                let nothing = || Err("no value yet".to_owned());
                readings.entry(described.topic.clone()).or_insert_with(nothing);
            }
        });
        source.latest(&wanted, &mut |row: &Row<'_>| {
            if pattern.matches(row.of.topic) {
                let age = now.since(row.checked_at);
                let reading = match max_age.filter(|most| age > *most) {
                    None => Ok(json(row, now)),
                    Some(most) => Err(format!(
                        "last looked at {} ago, longer than max_age {}",
                        duration::human(age),
                        duration::human(most)
                    )),
                };
                readings.insert(row.of.topic.clone(), reading);
            }
        });
    }
    if let (Some(text), true) = (first, readings.is_empty()) {
        let refusal = Refusal::new(StatusCode::NOT_FOUND, format!("no topic matches `{text}`"));
        return Err(match nearest(source, text) {
            Some(topic) => refusal.hint(format!("did you mean `{topic}`?")),
            None => refusal.hint("`SELECT topic FROM topics` shows every topic"),
        });
    }
    let mut found = Readings { readings: Vec::new(), refused: missing };
    for (topic, reading) in readings {
        match reading {
            Ok(reading) => found.readings.push(reading),
            Err(reason) => found.refused.push(Refused { topic: topic.to_string(), reason }),
        }
    }
    Ok(found)
}
