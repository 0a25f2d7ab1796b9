//! Names of topics in Prometheus' data model, for `/metrics` and for remote write.
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
//! - Two topics never share a series. Names in Prometheus allow fewer characters than topics, and `_` separates
//!   family and metric but also occurs in both. A topic with an ambiguous name has the additional label `topic`.
//! - A topic's series depends only on the topic, so it does not change when other topics come and go.

use std::collections::HashSet;
use std::sync::LazyLock;

use skopos_model::{Kind, Origin, Topic, Value, core_list, schema};
use skopos_query::Row;

/// Prefix of every name.
const PREFIX: &str = "skopos";

/// The series of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Series {
    /// The metric's name.
    pub name: String,
    /// Labels in the order of their names, as remote write requires.
    pub labels: Vec<(&'static str, String)>,
}

impl Series {
    /// Returns the series of `topic`.
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

/// Returns the segments between the family, which has `path` segments below the node, and the metric.
fn instance(topic: &Topic, path: usize) -> Option<String> {
    let segments: Vec<&str> = topic.segments().skip(1 + path).collect();
    let (_, between) = segments.split_last()?;
    (!between.is_empty()).then(|| between.join("/"))
}

/// Returns the name and the instance of a topic outside of the schemas, and true if the name is unambiguous.
fn other(topic: &Topic) -> (String, Option<String>, bool) {
    let below_node: Vec<&str> = topic.segments().skip(1).collect();
    let (family, metric) = match *below_node.as_slice() {
        [] => ("", topic.metric()),
        [metric] => ("", metric),
        [family, .., metric] => (family, metric),
    };
    let name = joined(family, metric);
    let is_exact = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // The first `_` from the left ends the family, so a family must not contain `_`. Without a family, the metric must
    // not contain it.
    let first_part = if family.is_empty() { metric } else { family };
    let is_only =
        below_node.iter().take(1).chain(below_node.last()).all(|s| s.chars().all(is_exact))
            && !below_node.is_empty()
            && !first_part.contains('_')
            && !SCHEMA_NAMES.contains(&name);
    (name, instance(topic, 1), is_only)
}

/// Names of all metrics in schemas.
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

/// Returns the number of a row. Unknown and non-numeric values have no sample in Prometheus.
fn number(row: &Row<'_>) -> Option<f64> {
    let is_known = row.sample.origin != Origin::Unknown;
    row.sample.value.as_f64().filter(|number| is_known && number.is_finite())
}

/// Passes each number of a row to `visit`, with its topic: the row's own, or those of the members of a list of
/// cores.
pub fn numbers(row: &Row<'_>, visit: &mut dyn FnMut(&Topic, f64)) {
    if let Some(number) = number(row) {
        return visit(row.of.topic, number);
    }
    if let (Value::Structured(list), true) =
        (&row.sample.value, row.sample.origin != Origin::Unknown)
    {
        core_list::topics(row.of.topic, list).for_each(|(topic, number)| visit(&topic, number));
    }
}

/// Returns Prometheus' type for values of this kind.
pub fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge | Kind::State => "gauge",
    }
}

/// Escapes the value of a label for the text format.
pub fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Escapes a help text for the text format.
pub fn escape_help(help: &str) -> String {
    help.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use skopos_model::{Sample, Structured, Timestamp, Unit, ValueType};
    use skopos_query::Described;

    use super::*;

    fn shown(topic: &str) -> String {
        let Series { name, labels } = Series::of(&topic.parse().expect("a topic"));
        let shown = |(name, value): &(&str, String)| format!("{name}=\"{}\"", escape_label(value));
        format!("{name}{{{}}}", labels.iter().map(shown).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn a_list_of_cores_has_a_number_of_each_core() {
        let of = |topic: &str, value: &str, origin| {
            let topic: Topic = topic.parse().expect("a topic");
            let value = Value::Structured(Structured::from_json(value).expect("JSON"));
            let sample = Sample { time: Timestamp::from_nanos(1), value, origin };
            let (unit, kind) = (Unit::RATIO, Kind::Gauge);
            let value_type = ValueType::Structured;
            let of = Described { topic: &topic, unit, kind, value_type, publisher: "agent" };
            let row = Row { of, sample: &sample, checked_at: sample.time, ahead: 0, age: None };
            let mut found = Vec::new();
            numbers(&row, &mut |topic, number| found.push(format!("{topic} {number}")));
            found
        };
        let list = "n01/cpu/per_cpu:256/busy_ratio";
        assert_eq!(
            of(list, "[0.5,null,1]", Origin::Measured),
            ["n01/cpu/256/busy_ratio 0.5", "n01/cpu/258/busy_ratio 1"]
        );
        assert_eq!(of(list, "[0.5]", Origin::Unknown), Vec::<String>::new());
        assert_eq!(of("n01/app/list", "[0.5]", Origin::Measured), Vec::<String>::new());
    }

    #[test]
    fn topics_have_valid_names_in_prometheus() {
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
    fn two_topics_never_share_a_series() {
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
