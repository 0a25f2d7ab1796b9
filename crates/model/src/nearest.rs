//! Suggestions for mistyped names.

use strsim::normalized_damerau_levenshtein as similarity;

/// The least similarity of a name that is suggested: about one wrong letter of two in a short name.
const MIN_NAME: f64 = 0.5;

/// The least similarity of a topic that is suggested. Topics share long parts, so unlike ones are alike by
/// this measure.
const MIN_TOPIC: f64 = 0.7;

/// Returns the name that is most similar to `typed`; `None` if all are too different.
///
/// ```
/// let sensors = ["block", "load", "mem"];
/// assert_eq!(skopos_model::nearest_name("blok", sensors), Some("block"));
/// assert_eq!(skopos_model::nearest_name("tcp", sensors), None);
/// ```
pub fn nearest_name<T: AsRef<str>>(typed: &str, known: impl IntoIterator<Item = T>) -> Option<T> {
    best(MIN_NAME, known, |name| similarity(name, typed))
}

/// Returns the topic that is most similar to `typed`, compared with and without its node; `None` if all are
/// too different.
pub fn nearest_topic<T: AsRef<str>>(typed: &str, known: impl IntoIterator<Item = T>) -> Option<T> {
    best(MIN_TOPIC, known, |topic| {
        let below_node = topic.split_once('/').map_or(topic, |(_, rest)| rest);
        similarity(topic, typed).max(similarity(below_node, typed))
    })
}

/// Returns the most similar of `known`, if its similarity is at least `least`.
fn best<T: AsRef<str>>(
    least: f64,
    known: impl IntoIterator<Item = T>,
    similarity: impl Fn(&str) -> f64,
) -> Option<T> {
    known
        .into_iter()
        .map(|name| (similarity(name.as_ref()), name))
        .filter(|(similarity, _)| *similarity >= least)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
