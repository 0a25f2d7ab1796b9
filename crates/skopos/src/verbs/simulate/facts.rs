//! Simulated facts of a node: topics, units, kinds and types of the schema, with values that change in the
//! way of their kind.

use skopos_model::SplitMix64;
use skopos_model::schema::{self, Family, Metric};
use skopos_model::{Kind, Origin, Timestamp, Topic, ValueType};
use skopos_wire::{Content, Description, IndexedSample};

/// Families without facts of a simulated node: they describe other nodes, or are computed.
const LEFT_OUT: [&str; 3] = ["insight", "mirror", "peer"];

/// A fact and its latest sample.
pub(crate) struct Fact {
    pub(crate) description: Description,
    pub(crate) time: Timestamp,
    pub(crate) bits: u64,
    scale: f64,
}

/// The first `count` facts of a node: each family once, then further instances of families with instances.
pub(crate) fn of_node(node: &str, count: usize, random: &mut SplitMix64) -> Vec<Fact> {
    let families = || schema::FAMILIES.iter().filter(|family| !LEFT_OUT.contains(&family.name));
    let instances = (0..).flat_map(|round| families().map(move |family| (*family, round)));
    let instances = instances.filter(|(family, round)| *round == 0 || !family.instance.is_empty());
    let metrics = instances.flat_map(|(family, round)| {
        let numbers = family.metrics.iter().filter(|m| m.value_type != ValueType::Structured);
        numbers.map(move |metric| (*metric, instance(family, round)))
    });
    let topics = metrics
        .filter_map(|(metric, instance)| Some((metric, metric.topic(node, &instance).ok()?)));
    topics
        .take(count)
        .enumerate()
        .map(|(index, (metric, topic))| Fact::new(index, metric, topic, random))
        .collect()
}

fn instance(family: &Family, round: u32) -> String {
    match family.instance {
        "" => String::new(),
        // The description of an instance has several words, and a segment of a topic has only one.
        what => format!("{}{round}", what.split_whitespace().next().unwrap_or(what)),
    }
}

impl Fact {
    fn new(index: usize, metric: &Metric, topic: Topic, random: &mut SplitMix64) -> Self {
        let description = Description {
            index: index as u32,
            topic,
            unit: metric.unit,
            kind: metric.kind,
            value_type: metric.value_type,
        };
        let scale = match metric.unit.as_str() {
            "bytes" => 1e9,
            "ratio" => 1.0,
            "seconds" => 10.0,
            _ => 1000.0,
        };
        let mut fact = Self { description, time: Timestamp::default(), bits: 0, scale };
        fact.set(random.between(0.1, 0.9) * scale);
        fact
    }

    fn set(&mut self, value: f64) {
        self.bits = match self.description.value_type {
            ValueType::I64 => (value as i64).cast_unsigned(),
            ValueType::U64 => value as u64,
            _ => value.to_bits(),
        };
    }

    fn value(&self) -> f64 {
        match self.description.value_type {
            ValueType::I64 => self.bits.cast_signed() as f64,
            ValueType::U64 => self.bits as f64,
            _ => f64::from_bits(self.bits),
        }
    }

    /// Changes the value: counters grow, states flip, gauges wander.
    pub(crate) fn change(&mut self, time: Timestamp, random: &mut SplitMix64) {
        let (before, value) = (self.bits, self.value());
        self.set(match self.description.kind {
            Kind::Counter => value + random.unit() * self.scale / 100.0,
            Kind::State => f64::from(value < 0.5),
            Kind::Gauge => (value + random.normal() * self.scale / 50.0).clamp(0.0, self.scale),
        });
        if self.bits == before {
            // The change was rounded away, or the value is at its bound: one step away from the bound.
            let step = if value < self.scale || self.description.kind == Kind::Counter {
                1.0
            } else {
                -1.0
            };
            self.set(value + step);
        }
        self.time = time;
    }

    /// Returns the latest sample.
    pub(crate) fn sample(&self) -> IndexedSample {
        let (index, value) = (self.description.index, Content::Bits(self.bits));
        IndexedSample { index, time: self.time, origin: Origin::Measured, value }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_node_has_the_wanted_number_of_facts_of_the_schema_each_once() {
        let mut random = SplitMix64::new(1);
        for count in [0, 1, 300, 5000] {
            let facts = of_node("n1", count, &mut random);
            let topics: HashSet<&str> =
                facts.iter().map(|f| f.description.topic.as_str()).collect();
            assert_eq!((facts.len(), topics.len()), (count, count));
            for Fact { description, .. } in &facts {
                let metric = schema::lookup(&description.topic).expect("of the schema");
                assert_eq!((metric.unit, metric.kind), (description.unit, description.kind));
            }
        }
    }

    #[test]
    fn a_change_changes_the_value_and_counters_never_fall() {
        let mut random = SplitMix64::new(2);
        for fact in &mut of_node("n1", 400, &mut random) {
            for round in 1..50 {
                let (bits, value) = (fact.bits, fact.value());
                fact.change(Timestamp::from_nanos(round), &mut random);
                let topic = &fact.description.topic;
                assert_ne!(fact.bits, bits, "{topic}");
                let may_fall = fact.description.kind != Kind::Counter;
                assert!(may_fall || fact.value() > value, "{topic}");
            }
        }
    }
}
