//! From what a query string says to topics.

use std::time::Duration;

use axum::extract::Query;
use axum::http::Uri;
use skopos_model::{Topic, TopicPattern, duration};
use skopos_query::{Described, Row, Source, Wanted};

use super::Refusal;
use crate::failure::Failure;
use crate::find::{LIKENESS, readings_of};
use crate::reading::{Of, ReadingJson};

/// Parameters of a request. As many topics are asked for in one request as programs need at once.
const MAX_PARAMETERS: usize = 256;

/// The parameters of a request, in their order.
pub(super) fn parameters(uri: &Uri) -> Result<Vec<(String, String)>, Refusal> {
    let Query(all) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|e| Refusal::bad(format!("the query string cannot be read: {e}")))?;
    match all.len() <= MAX_PARAMETERS {
        true => Ok(all),
        false => {
            Err(Refusal::bad(format!("a request has {MAX_PARAMETERS} parameters at the most")))
        }
    }
}

/// A parameter that is a time.
pub(super) fn time(text: &str) -> Result<Duration, Refusal> {
    duration::parse(text).map_err(|e| Refusal::bad(e.to_string()).hint("write it like `500ms`"))
}

/// A parameter that is not known.
pub(super) fn unknown(name: &str, known: &str) -> Refusal {
    Refusal::bad(format!("there is no parameter `{name}`")).hint(format!("there are {known}"))
}

/// The topics to look at for those that match: a source shows them by their beginnings.
pub(in crate::hub) fn wanted(pattern: &TopicPattern) -> Wanted {
    match pattern.as_topic() {
        Some(topic) => Wanted::These(vec![topic]),
        None => {
            let literal = pattern.as_str().split('*').next().unwrap_or_default();
            if literal.is_empty() {
                Wanted::All
            } else {
                Wanted::Starting(vec![literal.to_owned()])
            }
        }
    }
}

/// What a text stands for: the first of its readings that anything matches, or none of them.
pub(in crate::hub) fn reading(
    source: &dyn Source,
    text: &str,
) -> Result<Option<TopicPattern>, Failure> {
    let matches = |pattern: &TopicPattern| {
        let mut found = false;
        source.topics(&wanted(pattern), &mut |d: &Described<'_>| found |= pattern.matches(d.topic));
        found
    };
    Ok(readings_of(text)?.into_iter().find(matches))
}

/// The topic that looks most like `text`, with its node or without.
pub(in crate::hub) fn nearest(source: &dyn Source, text: &str) -> Option<Topic> {
    let mut best: Option<(f64, Topic)> = None;
    source.topics(&Wanted::All, &mut |described| {
        let topic = described.topic.as_str();
        let below_node = topic.split_once('/').map_or(topic, |(_, rest)| rest);
        let likeness = strsim::normalized_damerau_levenshtein(topic, text)
            .max(strsim::normalized_damerau_levenshtein(below_node, text));
        if likeness >= LIKENESS && best.as_ref().is_none_or(|(known, _)| likeness > *known) {
            best = Some((likeness, described.topic.clone()));
        }
    });
    best.map(|(_, topic)| topic)
}

/// A row as every verb shows it.
pub(in crate::hub) fn json(row: &Row<'_>, now: skopos_model::Timestamp) -> ReadingJson {
    let Described { topic, unit, kind, value_type, publisher } = row.of;
    let of = Of { topic, unit, kind, value_type, segment: publisher, pid: None };
    ReadingJson::of(&of, row.sample, row.checked_at, row.age(now))
}
