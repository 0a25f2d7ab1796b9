//! A source with the content that a test gives it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use skopos_access::Caller;
use skopos_model::{Kind, Origin, Sample, Structured, Timestamp, Topic, Unit, Value, ValueType};
use skopos_query::arrow::util::display::{ArrayFormatter, FormatOptions};
use skopos_query::{Answer, Described, Engine, Limits, Node, Registry, Row, Source, Wanted};

/// The time in every test.
pub(crate) const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) vertices: Vec<Vertex>,
}

#[derive(Debug)]
pub(crate) struct Vertex {
    pub(crate) topic: Topic,
    pub(crate) unit: Unit,
    pub(crate) kind: Kind,
    pub(crate) samples: Vec<Sample>,
}

impl World {
    /// Adds a topic with these values, one a second, the last one at `NOW`.
    pub(crate) fn with(mut self, topic: &str, unit: Unit, values: &[f64]) -> Self {
        let samples = values.iter().enumerate().map(|(at, value)| {
            let back = (values.len() - 1 - at) as i64 * 1_000_000_000;
            let time = Timestamp::from_nanos(NOW.as_nanos() - back);
            match value.is_nan() {
                true => Sample::unknown(time, ValueType::F64, "unknown"),
                false => Sample::measured(time, Value::F64(*value)),
            }
        });
        let topic = Topic::new(topic).expect("a topic");
        let samples = samples.collect();
        self.vertices.push(Vertex { topic, unit, kind: Kind::Gauge, samples });
        self
    }

    /// Adds a topic with these samples, one a second, the last one at `NOW`.
    pub(crate) fn with_samples(
        mut self,
        topic: &str,
        unit: Unit,
        made: Vec<(Value, Origin)>,
    ) -> Self {
        let count = made.len() as i64;
        let samples = made.into_iter().enumerate().map(|(at, (value, origin))| {
            let back = (count - 1 - at as i64) * 1_000_000_000;
            Sample { time: Timestamp::from_nanos(NOW.as_nanos() - back), value, origin }
        });
        let (topic, samples) = (Topic::new(topic).expect("a topic"), samples.collect());
        self.vertices.push(Vertex { topic, unit, kind: Kind::Gauge, samples });
        self
    }

    /// Adds a topic with one text.
    pub(crate) fn with_text(self, topic: &str, text: &str) -> Self {
        self.with_value(topic, Value::Structured(Structured::text(text)))
    }

    fn with_value(mut self, topic: &str, value: Value) -> Self {
        let sample = Sample { time: NOW, value, origin: Origin::Measured };
        let topic = Topic::new(topic).expect("a topic");
        self.vertices.push(Vertex {
            topic,
            unit: Unit::NONE,
            kind: Kind::State,
            samples: vec![sample],
        });
        self
    }

    pub(crate) fn engine(self, aliases: &[(&str, &str)]) -> Engine {
        let topic = |text: &str| Topic::new(text).expect("a topic");
        let mut registry = Registry::new(Arc::new(self));
        for (name, text) in aliases {
            registry.alias(name, topic(text)).expect("an alias");
        }
        Engine::new(registry).expect("an engine")
    }
}

impl Vertex {
    fn described(&self) -> Described<'_> {
        Described {
            topic: &self.topic,
            unit: self.unit,
            kind: self.kind,
            value_type: ValueType::F64,
            publisher: "test",
        }
    }
}

impl Source for World {
    fn now(&self) -> Timestamp {
        NOW
    }

    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
        for vertex in self.vertices.iter().filter(|v| wanted.selects(v.topic.as_str())) {
            if let Some(sample) = vertex.samples.last() {
                visit(&Row {
                    of: vertex.described(),
                    sample,
                    checked_at: sample.time,
                    ahead: 0,
                    age: None,
                });
            }
        }
    }

    fn samples(
        &self,
        wanted: &Wanted,
        times: RangeInclusive<Timestamp>,
        visit: &mut dyn FnMut(&Row<'_>),
    ) {
        for vertex in self.vertices.iter().filter(|v| wanted.selects(v.topic.as_str())) {
            for sample in vertex.samples.iter().filter(|sample| times.contains(&sample.time)) {
                visit(&Row {
                    of: vertex.described(),
                    sample,
                    checked_at: sample.time,
                    ahead: 0,
                    age: None,
                });
            }
        }
    }

    fn topics(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Described<'_>)) {
        let wanted = self.vertices.iter().filter(|v| wanted.selects(v.topic.as_str()));
        wanted.for_each(|vertex| visit(&vertex.described()));
    }

    fn nodes(&self) -> Vec<Node> {
        Vec::new()
    }
}

/// Returns the answer to a statement.
pub(crate) fn ask(engine: &Engine, sql: &str) -> Answer {
    let answer = block_on(engine.query(&Caller::Owner, sql, &Limits::default()));
    answer.unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// Waits for a future.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}

/// Returns the names of the columns, and each row as text, sorted.
pub(crate) fn rows(answer: &Answer) -> (Vec<String>, Vec<String>) {
    let names = answer.schema.fields().iter().map(|f| format!("{}: {}", f.name(), f.data_type()));
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in &answer.batches {
        let columns = batch.columns().iter();
        let columns: Vec<ArrayFormatter<'_>> =
            columns.map(|c| ArrayFormatter::try_new(c, &options).expect("a column")).collect();
        for at in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|c| c.value(at).to_string()).collect();
            rows.push(cells.join(" | "));
        }
    }
    rows.sort();
    (names.collect(), rows)
}
