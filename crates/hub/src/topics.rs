//! Resolves the texts of a client to topics of a source.

use skopos_model::{Topic, TopicPattern, topic_similarity};
use skopos_query::{Described, Row, Source, Wanted};
use skopos_term::Failure;
use skopos_term::find::readings_of;
use skopos_term::reading::{ReadingJson, ReadingSource};

/// Number of topics with which a misspelt one is compared: those of some two hundred nodes.
const MAX_COMPARED: usize = 65_536;

/// Returns a selection that contains every topic that matches `pattern`. A source selects topics by prefix only, so
/// other topics may be in it.
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

/// Resolves `text` to the first of its possible patterns that matches a topic; `None` if none matches.
///
/// # Errors
/// Fails if `text` is not a topic or a pattern.
pub fn resolve(source: &dyn Source, text: &str) -> Result<Option<TopicPattern>, Failure> {
    let matches = |pattern: &TopicPattern| {
        let mut found = false;
        source.topics(&wanted(pattern), &mut |d: &Described<'_>| found |= pattern.matches(d.topic));
        found
    };
    Ok(readings_of(text)?.into_iter().find(matches))
}

/// Returns true if each text is a topic that exists, with its node: such topics are found at once.
pub fn are_known(source: &dyn Source, texts: &[String]) -> bool {
    let is_known = |text: &String| {
        let Ok(topic) = Topic::new(text) else { return false };
        let mut is_known = false;
        let wanted = Wanted::These(vec![topic.clone()]);
        source.topics(&wanted, &mut |described| is_known |= *described.topic == topic);
        is_known
    };
    texts.iter().all(is_known)
}

/// Returns the topic that is most similar to `text`, with or without its node. A site can have more topics than are
/// compared.
pub fn nearest(source: &dyn Source, text: &str) -> Option<Topic> {
    let mut best: Option<(f64, Topic)> = None;
    let mut compared = 0;
    source.topics(&Wanted::All, &mut |described| {
        compared += 1;
        if compared > MAX_COMPARED {
            return;
        }
        // Only the best one is copied.
        if let Some(similarity) = topic_similarity(text, described.topic.as_str())
            && best.as_ref().is_none_or(|(most, _)| similarity > *most)
        {
            best = Some((similarity, described.topic.clone()));
        }
    });
    best.map(|(_, topic)| topic)
}

/// Returns a row as the JSON document of a reading, which all verbs share.
pub fn json(row: &Row<'_>, now: skopos_model::Timestamp) -> ReadingJson {
    let Described { topic, unit, kind, value_type, publisher } = row.of;
    let of = ReadingSource { topic, unit, kind, value_type, segment: publisher, pid: None };
    ReadingJson::from_source(&of, row.sample, row.checked_at, row.age(now))
}
