//! The destination of the facts of a part: registers each instance when it comes first, within bounds.

use std::collections::HashMap;

use skopos_model::schema::{FAMILIES, Family, Metric};
use skopos_model::{Scalar, Structured, ValueType};
use skopos_net::collector::FactSink;
use skopos_sense::{FactId, Sink};

/// The most facts of a part: a quarter of the segment's entries, so that a large network leaves room for the facts of the
/// host.
const MAX_FACTS: usize = 4096;

/// The most lists among them. A list takes 20 KiB, so all take 5 MiB of the segment's 128.
const MAX_STRUCTURED: usize = 256;

/// The registered facts of an instance.
type Registered = Vec<(&'static Metric, FactId)>;

/// The facts of a part that are registered.
#[derive(Default)]
pub(super) struct FactTable {
    /// By the path of the family, then by the instance.
    instances: HashMap<&'static str, HashMap<Box<str>, Registered>>,
    facts: usize,
    structured: usize,
    left_out: u64,
    /// The instance that was left out last, which has several facts and counts once.
    last_left_out: (&'static str, String),
}

/// A table with the sink of a poll.
pub(super) struct TableSink<'a> {
    table: &'a mut FactTable,
    sink: &'a mut dyn Sink,
}

impl FactTable {
    /// Begins a poll, whose facts go to `sink`.
    pub(super) fn at<'a>(&'a mut self, sink: &'a mut dyn Sink) -> TableSink<'a> {
        self.left_out = 0;
        self.last_left_out.1.clear();
        TableSink { table: self, sink }
    }

    /// Returns the facts and the lists that an instance of this family needs.
    fn needs(path: &str) -> (usize, usize) {
        let metrics = FAMILIES.iter().find(|family| family.path == path).map(|f| f.metrics);
        let metrics = metrics.unwrap_or_default();
        let lists = metrics.iter().filter(|metric| metric.value_type == ValueType::Structured);
        (metrics.len(), lists.count())
    }
}

impl TableSink<'_> {
    /// Returns the number of instances for which there was no room in this poll.
    pub(super) fn left_out(&self) -> u64 {
        self.table.left_out
    }

    /// Returns the id of a fact, which is registered if it is new. `None` if its instance has no room.
    fn id(&mut self, metric: &'static Metric, instance: &str) -> Option<FactId> {
        let Self { table, sink } = self;
        let known = table.instances.entry(metric.path).or_default();
        if !known.contains_key(instance) {
            let (facts, lists) = FactTable::needs(metric.path);
            if table.facts + facts > MAX_FACTS || table.structured + lists > MAX_STRUCTURED {
                let is_same =
                    table.last_left_out.0 == metric.path && table.last_left_out.1 == instance;
                if !is_same {
                    table.left_out += 1;
                    table.last_left_out = (metric.path, instance.to_owned());
                }
                return None;
            }
            table.facts += facts;
            table.structured += lists;
            known.insert(instance.into(), Vec::with_capacity(facts));
        }
        let ids = known.get_mut(instance)?;
        let found = ids.iter().find(|(own, _)| std::ptr::eq(*own, metric)).map(|(_, id)| *id);
        if found.is_some() {
            return found;
        }
        let id = sink.register(metric, instance);
        ids.push((metric, id));
        Some(id)
    }
}

impl FactSink for TableSink<'_> {
    fn set(&mut self, metric: &'static Metric, instance: &str, value: Scalar) {
        if let Some(id) = self.id(metric, instance) {
            self.sink.set(id, value);
        }
    }

    fn set_structured(&mut self, metric: &'static Metric, instance: &str, value: &Structured) {
        if let Some(id) = self.id(metric, instance) {
            self.sink.set_structured(id, value);
        }
    }

    fn remove(&mut self, family: &'static Family, instance: &str) {
        let Self { table, sink } = self;
        let gone = table.instances.get_mut(family.path).and_then(|known| known.remove(instance));
        let Some(gone) = gone else { return };
        let (facts, lists) = FactTable::needs(family.path);
        table.facts -= facts;
        table.structured -= lists;
        gone.into_iter().for_each(|(_, id)| sink.unregister(id));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    use skopos_model::schema;
    use skopos_sense::{Sensor, Tick};

    use super::*;

    /// The registered facts, by their ids.
    #[derive(Default)]
    pub(in crate::telemetry) struct Recorded(BTreeMap<u32, (String, u64)>, u32);

    impl Recorded {
        /// Returns the value of a topic without its node.
        pub(in crate::telemetry) fn get(&self, topic: &str) -> Option<u64> {
            self.0.values().find(|(own, _)| own == topic).map(|(_, value)| *value)
        }

        /// Polls a sensor until `is_there`, as long as a busy machine needs.
        pub(in crate::telemetry) fn poll_until(
            &mut self,
            sensor: &mut dyn Sensor,
            is_there: impl Fn(&Self) -> bool,
        ) {
            let begun = Instant::now();
            while !is_there(self) {
                assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", self.0);
                std::thread::sleep(Duration::from_millis(5));
                let polled = sensor.poll(&mut Tick { monotonic: begun.elapsed(), sink: self });
                polled.expect("it works");
            }
        }
    }

    impl Sink for Recorded {
        fn register(&mut self, metric: &'static Metric, instance: &str) -> FactId {
            self.1 += 1;
            let between = if instance.is_empty() { "" } else { "/" };
            let topic = format!("{}{between}{instance}/{}", metric.path, metric.name);
            self.0.insert(self.1, (topic, 0));
            FactId::from_index(self.1)
        }

        fn register_list(&mut self, metric: &'static Metric, instance: &str) -> FactId {
            self.register(metric, instance)
        }

        fn unregister(&mut self, id: FactId) {
            self.0.remove(&id.index().expect("registered")).expect("once");
        }

        fn set(&mut self, id: FactId, value: Scalar) {
            let fact = self.0.get_mut(&id.index().expect("registered")).expect("registered");
            fact.1 = value.as_f64() as u64;
        }

        fn set_structured(&mut self, id: FactId, _: &Structured) {
            assert!(self.0.contains_key(&id.index().expect("registered")));
        }

        fn set_list(&mut self, _: FactId, _: &[Option<Scalar>]) {
            panic!("it registers no lists");
        }
    }

    #[test]
    fn an_instance_is_registered_once_and_removed_whole() {
        let (mut table, mut sink) = (FactTable::default(), Recorded::default());
        for value in [3_u64, 7] {
            let mut at = table.at(&mut sink);
            at.set(&schema::port::PACKETS_TOTAL, "1-2", value.into());
            at.set(&schema::port::QUEUE_BYTES, "1-2", 9_u64.into());
            assert_eq!(at.left_out(), 0);
        }
        let shown: Vec<_> = sink.0.values().map(|(topic, value)| (&**topic, *value)).collect();
        assert_eq!(shown, [("port/1-2/packets_total", 7), ("port/1-2/queue_bytes", 9)]);
        table.at(&mut sink).remove(&schema::port::FAMILY, "1-2");
        table.at(&mut sink).remove(&schema::port::FAMILY, "1-2");
        assert!(sink.0.is_empty() && table.facts == 0 && table.structured == 0);
    }

    #[test]
    fn instances_beyond_the_bound_are_counted_and_come_when_there_is_room() {
        let (mut table, mut sink) = (FactTable::default(), Recorded::default());
        let publish = |table: &mut FactTable, sink: &mut Recorded| {
            let mut at = table.at(sink);
            for path in 0..MAX_STRUCTURED as u64 + 3 {
                let name = format!("10.0.0.1-10.0.{}.{}", path >> 8, path & 255);
                at.set(&schema::path::PACKETS_TOTAL, &name, path.into());
                at.set(&schema::path::LOST_TOTAL, &name, path.into());
            }
            at.left_out()
        };
        assert_eq!(publish(&mut table, &mut sink), 3);
        assert_eq!(sink.0.len(), 2 * MAX_STRUCTURED);
        table.at(&mut sink).remove(&schema::path::FAMILY, "10.0.0.1-10.0.0.0");
        assert_eq!(publish(&mut table, &mut sink), 3, "the others have no room yet");
        assert_eq!(sink.0.len(), 2 * MAX_STRUCTURED);
    }
}
