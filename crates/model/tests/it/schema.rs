//! Every metric of every family is found by its own topics only.

use std::collections::HashSet;

use skopos_model::schema::{FAMILIES, Family, Metric, lookup, lookup_in_family};
use skopos_model::{Kind, Topic, ValueType};

fn all() -> impl Iterator<Item = (&'static Family, &'static Metric)> {
    FAMILIES.iter().flat_map(|family| family.metrics.iter().map(|metric| (*family, *metric)))
}

#[test]
fn every_metric_is_found_by_its_topic() {
    for (family, metric) in all() {
        let instance = if family.instance.is_empty() { "" } else { "a:b%20c" };
        let topic = metric.topic("n01.cluster", instance).expect("a topic");
        let (found_family, found) = lookup_in_family(&topic).unwrap_or_else(|| panic!("{topic}"));
        assert!(std::ptr::eq(found, metric), "{topic} is {} of {}", found.name, found_family.name);
        assert!(std::ptr::eq(found_family, family), "{topic}");
        assert!(std::ptr::eq(lookup(&topic).expect("found before"), metric));
        assert_eq!(topic.node(), "n01.cluster");
        assert_eq!(topic.metric(), metric.name);
        assert_eq!(metric.path, family.path);
    }
}

/// A family has an instance in every topic or in none.
#[test]
fn other_topics_belong_to_no_metric() {
    for (family, metric) in all() {
        let other = if family.instance.is_empty() { "instance" } else { "" };
        let topic = metric.topic("n01", other).expect("a topic");
        let found = lookup_in_family(&topic);
        assert!(found.is_none_or(|(f, _)| f.name != family.name), "{topic}");
        let deeper = metric.topic("n01", "two/segments").expect("a topic");
        let found = lookup_in_family(&deeper);
        assert!(found.is_none_or(|(f, _)| f.name != family.name), "{deeper}");
        let longer: Topic = format!("n01/{}x/{}", metric.path, metric.name).parse().expect("one");
        assert!(lookup(&longer).is_none(), "{longer}");
    }
    for text in ["n01", "mem", "n01/mem", "n01/available_bytes", "mem/available_bytes", "a/b/c/d"] {
        assert!(lookup(&text.parse().expect("a topic")).is_none(), "{text}");
    }
}

#[test]
fn families_and_metrics_are_distinguished() {
    let (mut names, mut topics) = (HashSet::new(), HashSet::new());
    for family in FAMILIES {
        assert!(names.insert(family.name), "two families {}", family.name);
        assert!(!family.metrics.is_empty(), "{}", family.name);
        assert!(!family.help.is_empty() && !family.source.is_empty(), "{}", family.name);
    }
    assert!(FAMILIES.is_sorted_by_key(|family| family.name), "by name");
    for (family, metric) in all() {
        let key = (family.path, family.instance.is_empty(), metric.name);
        assert!(topics.insert(key), "two metrics {key:?}");
        assert!(!metric.help.is_empty(), "{key:?}");
        let counts = metric.kind == Kind::Counter;
        assert_eq!(counts, metric.name.ends_with("_total"), "{key:?}: counters end in _total");
        assert!(metric.kind != Kind::Counter || metric.value_type != ValueType::Structured);
    }
}
