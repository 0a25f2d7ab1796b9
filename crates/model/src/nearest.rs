//! Suggestions for mistyped names.

use strsim::normalized_damerau_levenshtein as similarity;

/// The least similarity at which a name is suggested: half of its letters match.
const MIN_NAME: f64 = 0.5;

/// The least similarity at which a topic is suggested. Topics share long parts, so even different topics have a
/// high similarity.
const MIN_TOPIC: f64 = 0.7;

/// Returns the name that is most similar to `typed`, the first one of equals; `None` if all are too different.
///
/// ```
/// let sensors = ["block", "load", "mem"];
/// assert_eq!(skopos_model::nearest_name("blok", sensors), Some("block"));
/// assert_eq!(skopos_model::nearest_name("tcp", sensors), None);
/// assert_eq!(skopos_model::nearest_name("", [""]), None);
/// ```
pub fn nearest_name<T: AsRef<str>>(typed: &str, known: impl IntoIterator<Item = T>) -> Option<T> {
    best(known, |name| {
        let similarity = similarity(name, typed);
        (similarity >= MIN_NAME && !name.is_empty()).then_some(similarity)
    })
}

/// Returns the topic that is most similar to `typed`, the first one of equals; `None` if all are too different.
///
/// ```
/// let topics = ["n01/mem/free_bytes", "n01/load/load_1m"];
/// assert_eq!(skopos_model::nearest_topic("load/laod_1m", topics), Some("n01/load/load_1m"));
/// assert_eq!(skopos_model::nearest_topic("tcp/retransmits", topics), None);
/// ```
pub fn nearest_topic<T: AsRef<str>>(typed: &str, known: impl IntoIterator<Item = T>) -> Option<T> {
    best(known, |topic| topic_similarity(typed, topic))
}

/// Returns the similarity of `typed` to a topic, with or without its node, from 0 to 1; `None` if the two are
/// too different for a suggestion.
pub fn topic_similarity(typed: &str, topic: &str) -> Option<f64> {
    let below_node = topic.split_once('/').map_or(topic, |(_, rest)| rest);
    let similarity = similarity(topic, typed).max(similarity(below_node, typed));
    (similarity >= MIN_TOPIC).then_some(similarity)
}

/// Returns the most similar of `known`.
fn best<T: AsRef<str>>(
    known: impl IntoIterator<Item = T>,
    similarity: impl Fn(&str) -> Option<f64>,
) -> Option<T> {
    let mut best = None;
    for name in known {
        let similarity = similarity(name.as_ref());
        if similarity > best.as_ref().and_then(|(similarity, _)| *similarity) {
            best = Some((similarity, name));
        }
    }
    best.map(|(_, name)| name)
}
