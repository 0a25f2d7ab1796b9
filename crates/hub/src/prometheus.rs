//! What a topic is called in Prometheus' data model: one place for `/metrics` and remote write.
//!
//! | topic | series |
//! |---|---|
//! | `n01/mem/available_bytes` | `skopos_mem_available_bytes{node="n01"}` |
//! | `n01/block/vda/in_flight` | `skopos_block_in_flight{instance="vda",node="n01"}` |
//! | `n01/app/depth` | `skopos_app_depth{node="n01"}` |
//! | `n01/app/a-b/depth` | `skopos_app_depth{instance="a-b",node="n01"}` |
//! | `n01/app/queue-depth` | `skopos_app_queue_depth{node="n01",topic="n01/app/queue-depth"}` |
//!
//! # Invariants
//! - Two topics are never one series. A name of Prometheus has fewer characters than a topic, and `_`
//!   stands between family and metric as well as in both; a topic whose name could be another one's
//!   has the label `topic` beside the others.
//! - A topic's series depends on the topic alone, so it stays the same whatever else comes and goes.

use std::collections::HashSet;
use std::sync::LazyLock;

use skopos_model::{Kind, Origin, Topic, schema};
use skopos_query::Row;

/// What stands before every name.
const PREFIX: &str = "skopos";

/// A topic in Prometheus' words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Series {
    /// The metric's name.
    pub name: String,
    /// In the order of their names, which remote write asks for.
    pub labels: Vec<(&'static str, String)>,
}

impl Series {
    /// What `topic` is called.
    pub fn of(topic: &Topic) -> Self {
        let (name, instance, is_only) = match schema::lookup_in_family(topic) {
            Some((family, metric)) => {
                let instance = instance(topic, family.path.split('/').count());
                (joined(family.name, metric.name), instance, true)
            }
            None => other(topic),
        };
        let mut labels = Vec::with_capacity(3);
        labels.extend(instance.map(|instance| ("instance", instance)));
        labels.push(("node", topic.node().to_owned()));
        if !is_only {
            labels.push(("topic", topic.as_str().to_owned()));
        }
        Self { name, labels }
    }
}

/// What is between the node with `path` segments below it, and the metric.
fn instance(topic: &Topic, path: usize) -> Option<String> {
    let segments: Vec<&str> = topic.segments().skip(1 + path).collect();
    let (_, between) = segments.split_last()?;
    (!between.is_empty()).then(|| between.join("/"))
}

/// Of a topic that is in no schema: its name, its instance, and whether the name can only be its own.
fn other(topic: &Topic) -> (String, Option<String>, bool) {
    let below_node: Vec<&str> = topic.segments().skip(1).collect();
    let (family, metric) = match *below_node.as_slice() {
        [] => ("", topic.metric()),
        [metric] => ("", metric),
        [family, .., metric] => (family, metric),
    };
    let name = joined(family, metric);
    let is_exact = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // Read from the left, the first `_` ends the family; without a family there must be none.
    let first_part = if family.is_empty() { metric } else { family };
    let is_only =
        below_node.iter().take(1).chain(below_node.last()).all(|s| s.chars().all(is_exact))
            && !below_node.is_empty()
            && !first_part.contains('_')
            && !SCHEMA_NAMES.contains(&name);
    (name, instance(topic, 1), is_only)
}

/// The names of all that sensors measure.
static SCHEMA_NAMES: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let of_family = |family: &&'static schema::Family| {
        let name = family.name;
        family.metrics.iter().map(move |metric| joined(name, metric.name))
    };
    schema::FAMILIES.iter().flat_map(of_family).collect()
});

fn joined(family: &str, metric: &str) -> String {
    let parts = [PREFIX, family, metric];
    let parts = parts.iter().filter(|part| !part.is_empty());
    let plain = |part: &&str| part.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    parts.map(plain).collect::<Vec<_>>().join("_")
}

/// The number that a row has, if it has one: what is unknown is no sample in Prometheus.
pub fn number(row: &Row<'_>) -> Option<f64> {
    let is_known = row.sample.origin != Origin::Unknown;
    row.sample.value.as_f64().filter(|number| is_known && number.is_finite())
}

/// The type that Prometheus has for values that move so.
pub fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge | Kind::State => "gauge",
    }
}

/// A label's value as the text format has it between its quotes.
pub fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// What stands after `# HELP name`.
pub fn escape_help(help: &str) -> String {
    help.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(topic: &str) -> String {
        let Series { name, labels } = Series::of(&topic.parse().expect("a topic"));
        let shown = |(name, value): &(&str, String)| format!("{name}=\"{}\"", escape_label(value));
        format!("{name}{{{}}}", labels.iter().map(shown).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn topics_have_the_names_that_prometheus_takes() {
        for (topic, expected) in [
            ("n01/mem/available_bytes", "skopos_mem_available_bytes{node=\"n01\"}"),
            ("n01/load/load_1m", "skopos_load_load_1m{node=\"n01\"}"),
            ("n01/block/vda/in_flight", "skopos_block_in_flight{instance=\"vda\",node=\"n01\"}"),
            (
                "n01/self/sensor/mem/poll_seconds",
                "skopos_self_sensor_poll_seconds{instance=\"mem\",node=\"n01\"}",
            ),
            (
                "n01/insight/vda/interference_factor_ratio",
                "skopos_insight_interference_factor_ratio{instance=\"vda\",node=\"n01\"}",
            ),
            ("n01/insight/space", "skopos_insight_space{node=\"n01\"}"),
            ("n01/app/a-b/c/depth", "skopos_app_depth{instance=\"a-b/c\",node=\"n01\"}"),
            (
                "n01/predicted/load/load_1m",
                "skopos_predicted_load_1m{instance=\"load\",node=\"n01\"}",
            ),
            ("n01/depth", "skopos_depth{node=\"n01\"}"),
            ("depth", "skopos_depth{node=\"depth\",topic=\"depth\"}"),
            (
                "n01/app/queue-depth",
                "skopos_app_queue_depth{node=\"n01\",topic=\"n01/app/queue-depth\"}",
            ),
            (
                "n01/my.app/1:2%@+=",
                "skopos_my_app_1_2____{node=\"n01\",topic=\"n01/my.app/1:2%@+=\"}",
            ),
        ] {
            assert_eq!(shown(topic), expected);
        }
    }

    #[test]
    fn two_topics_are_never_one_series() {
        let mut topics: Vec<Topic> = Vec::new();
        for family in schema::FAMILIES {
            let instance = if family.instance.is_empty() { "" } else { "i" };
            topics.extend(family.metrics.iter().filter_map(|m| m.topic("n", instance).ok()));
        }
        let parts = ["a", "a_b", "a-b", "b", "b_c", "b.c", "c", "mem", "total_bytes", "mem_total"];
        for one in parts.iter().chain(&["self", "self_sensor", "bytes", "a_", "_a"]) {
            topics.extend(
                [one.to_string(), format!("n/{one}")].iter().filter_map(|t| t.parse().ok()),
            );
            for two in parts.iter().chain(&["sensor_poll_seconds", "poll_seconds", "bytes"]) {
                topics.extend(
                    [format!("n/{one}/{two}"), format!("n/{one}/i/{two}")]
                        .iter()
                        .filter_map(|t| t.parse().ok()),
                );
            }
        }
        topics.sort();
        topics.dedup();
        assert!(topics.len() > 500, "{}", topics.len());
        let mut seen = std::collections::HashMap::new();
        for topic in topics {
            let series = Series::of(&topic);
            assert!(
                series.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
                "{series:?}"
            );
            assert!(series.labels.is_sorted(), "{series:?}");
            if let Some(other) = seen.insert(series.clone(), topic.clone()) {
                panic!("{topic} and {other} are both {series:?}");
            }
        }
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape_label("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
        assert_eq!(escape_help("a\\b\"c\nd"), "a\\\\b\"c\\nd");
    }
}
