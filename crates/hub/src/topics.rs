//! From what a client wrote to the topics of a source.

use skopos_model::{Topic, TopicPattern};
use skopos_query::{Described, Row, Source, Wanted};
use skopos_term::Failure;
use skopos_term::find::{LIKENESS, readings_of};
use skopos_term::reading::{ReadingJson, ReadingSource};

/// The topics to look at for those that match: a source shows them by their beginnings.
pub fn wanted(pattern: &TopicPattern) -> Wanted {
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
pub fn reading(source: &dyn Source, text: &str) -> Result<Option<TopicPattern>, Failure> {
    let matches = |pattern: &TopicPattern| {
        let mut found = false;
        source.topics(&wanted(pattern), &mut |d: &Described<'_>| found |= pattern.matches(d.topic));
        found
    };
    Ok(readings_of(text)?.into_iter().find(matches))
}

/// The topic that looks most like `text`, with its node or without.
pub fn nearest(source: &dyn Source, text: &str) -> Option<Topic> {
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
pub fn json(row: &Row<'_>, now: skopos_model::Timestamp) -> ReadingJson {
    let Described { topic, unit, kind, value_type, publisher } = row.of;
    let of = ReadingSource { topic, unit, kind, value_type, segment: publisher, pid: None };
    ReadingJson::from_source(&of, row.sample, row.checked_at, row.age(now))
}
