//! A publisher and a reader compared with a simple model: a list of samples for each topic.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use skopos_model::{Origin, Sample, Timestamp, Value, ValueType};
use skopos_shm::{
    Delivery, Error, Published, Publisher, Segment, Subscription, Vertex, VertexWriter,
};

use crate::support::{at, runtime_dir, spec, structured, topic};

const TOPICS: [&str; 5] = ["t/a", "t/b", "t/c", "t/d", "t/e"];
const TYPES: [ValueType; 4] =
    [ValueType::F64, ValueType::I64, ValueType::U64, ValueType::Structured];
/// Capacity of the directory: one less than the number of topics, so that it can be full.
const MAX_VERTICES: u32 = 4;
/// Size of the heap: a few rings, so that it can be full.
const HEAP_BYTES: u64 = 64 << 10;
/// From the layout document: a vertex is a head, its slots, and four of the longest values if structured.
const BYTE_RING: u64 = 4 * 4096;

/// An operation. The domains are small, so that topics, values and times repeat.
#[derive(Clone, Debug)]
enum Step {
    Register { topic: usize, value_type: usize, log_slots: u32 },
    Unregister { topic: usize },
    Publish { topic: usize, value: u8, time: i64, predicted: bool },
    PublishWrong { topic: usize },
    Subscribe { topic: usize, oldest: bool },
    Deliver { topic: usize, most: usize },
    Latest { topic: usize },
    Range { topic: usize, from: i64, to: i64 },
    AsOf { topic: usize, time: i64 },
    List,
}

fn step() -> impl Strategy<Value = Step> {
    let topic = || 0..TOPICS.len();
    let time = || -20i64..120;
    prop_oneof![
        3 => (topic(), 0..TYPES.len(), 0u32..5).prop_map(|(topic, value_type, log_slots)| {
            Step::Register { topic, value_type, log_slots }
        }),
        1 => topic().prop_map(|topic| Step::Unregister { topic }),
        12 => (topic(), 0u8..6, time(), any::<bool>()).prop_map(|(topic, value, time, p)| {
            Step::Publish { topic, value, time, predicted: p }
        }),
        1 => topic().prop_map(|topic| Step::PublishWrong { topic }),
        2 => (topic(), any::<bool>()).prop_map(|(topic, oldest)| Step::Subscribe { topic, oldest }),
        4 => (topic(), 1usize..20).prop_map(|(topic, most)| Step::Deliver { topic, most }),
        2 => topic().prop_map(|topic| Step::Latest { topic }),
        2 => (topic(), time(), time()).prop_map(|(topic, from, to)| Step::Range { topic, from, to }),
        2 => (topic(), time()).prop_map(|(topic, time)| Step::AsOf { topic, time }),
        1 => Just(Step::List),
    ]
}

/// Returns the value for a small number; different numbers have different values.
fn value(value_type: ValueType, number: u8) -> Value {
    let n = i64::from(number);
    match value_type {
        ValueType::F64 => {
            [0.0, -0.0, f64::NAN, 1e300, f64::INFINITY, 0.1][usize::from(number) % 6].into_value()
        }
        ValueType::I64 => Value::I64(n - 3),
        ValueType::U64 => Value::U64(u64::MAX - n as u64),
        // The length is from a few bytes to a quarter of the byte ring.
        ValueType::Structured => {
            Value::Structured(structured(&format!("[{n},\"{}\"]", "x".repeat(n as usize * 800))))
        }
    }
}

trait IntoValue {
    fn into_value(self) -> Value;
}

impl IntoValue for f64 {
    fn into_value(self) -> Value {
        Value::F64(self)
    }
}

/// Compares to the last bit: a NaN equals itself.
fn same(a: &Sample, b: &Sample) -> bool {
    let bits = |v: &Value| if let Value::F64(v) = v { Some(v.to_bits()) } else { None };
    let values = bits(&a.value).map_or(a.value == b.value, |a| Some(a) == bits(&b.value));
    a.time == b.time && a.origin == b.origin && values
}

/// The model of one registration of a topic.
#[derive(Debug)]
struct ModelVertex {
    value_type: ValueType,
    slots: usize,
    samples: Vec<Sample>,
    /// Start of each structured sample's bytes, and the end of the last one's.
    positions: Vec<u64>,
    reserved: u64,
    checked_at: Timestamp,
}

impl ModelVertex {
    fn publish(&mut self, time: Timestamp, value: Value, origin: Origin) -> Published {
        let time = if self.samples.is_empty() { time } else { time.max(self.checked_at) };
        self.checked_at = time;
        let origin = match (&value, origin) {
            (Value::Structured(_), Origin::Predicted { .. }) => {
                Origin::Predicted { bound: f64::INFINITY }
            }
            _ => origin,
        };
        let sample = Sample { time, value, origin };
        if self.samples.last().is_some_and(|last| same(&Sample { time, ..last.clone() }, &sample)) {
            return Published::Unchanged;
        }
        self.positions.push(self.reserved);
        if let Value::Structured(text) = &sample.value {
            self.reserved += text.to_string().len().next_multiple_of(8) as u64;
        }
        self.samples.push(sample);
        Published::Stored
    }

    fn in_slots(&self, ticket: usize) -> bool {
        ticket + self.slots >= self.samples.len()
    }

    /// Returns true if sample `ticket` is in memory together with its bytes.
    fn kept(&self, ticket: usize) -> bool {
        let structured = self.value_type == ValueType::Structured;
        self.in_slots(ticket)
            && (!structured || self.reserved - self.positions[ticket] <= BYTE_RING)
    }
}

/// The model of a registration and the real handles of it.
struct Registered {
    model: ModelVertex,
    writer: VertexWriter,
    vertex: Vertex,
    cursors: Vec<(Subscription, usize)>,
}

struct World {
    _dir: tempfile::TempDir,
    publisher: Publisher,
    segment: Segment,
    present: BTreeMap<usize, Registered>,
    /// Handles of unregistered vertices, which must stay gone.
    gone: Vec<Registered>,
    heap_used: u64,
    free: HashMap<(u32, bool), u32>,
}

impl World {
    fn new() -> Self {
        let dir = runtime_dir();
        // Header, 256 groups and the directory fill ten pages; the heap is the rest.
        let builder = Publisher::builder("model").dir(dir.path()).max_vertices(MAX_VERTICES);
        let publisher = builder.max_bytes(10 * 4096 + HEAP_BYTES).create().expect("room");
        let segment = Segment::open(publisher.path()).expect("sound");
        let (present, gone) = (BTreeMap::new(), Vec::new());
        Self { _dir: dir, publisher, segment, present, gone, heap_used: 0, free: HashMap::new() }
    }

    fn register(&mut self, which: usize, value_type: ValueType, slots: u32) {
        let done = self.publisher.register(spec(TOPICS[which], value_type).slots(slots));
        let is_structured = value_type == ValueType::Structured;
        let ring = if is_structured { BYTE_RING } else { 0 };
        let bytes = (64 + 32 * u64::from(slots) + ring).next_multiple_of(64);
        let free = self.free.entry((slots, is_structured)).or_default();
        if self.present.contains_key(&which) {
            assert!(matches!(done, Err(Error::Duplicate(_))), "{done:?}");
        } else if self.present.len() == MAX_VERTICES as usize {
            assert!(matches!(done, Err(Error::SegmentFull { what: "vertices", .. })), "{done:?}");
        } else if *free == 0 && self.heap_used + bytes > HEAP_BYTES {
            assert!(matches!(done, Err(Error::SegmentFull { what: "bytes", .. })), "{done:?}");
        } else {
            match free.checked_sub(1) {
                Some(left) => *free = left,
                None => self.heap_used += bytes,
            }
            let writer = done.expect("there is room for it");
            let vertex = self.segment.find(writer.topic()).expect("registered");
            let model = ModelVertex {
                value_type,
                slots: slots as usize,
                samples: Vec::new(),
                positions: Vec::new(),
                reserved: 0,
                checked_at: at(i64::MIN),
            };
            let cursors = Vec::new();
            self.present.insert(which, Registered { model, writer, vertex, cursors });
        }
    }

    fn unregister(&mut self, which: usize) {
        let Some(registered) = self.present.remove(&which) else {
            assert!(matches!(self.segment.find(&topic(TOPICS[which])), Err(Error::NoVertex(_))));
            return;
        };
        self.publisher.unregister(&registered.writer);
        let slots = registered.model.slots as u32;
        let is_structured = registered.model.value_type == ValueType::Structured;
        *self.free.entry((slots, is_structured)).or_default() += 1;
        self.gone.push(registered);
    }

    fn list(&mut self) {
        let mut topics: Vec<_> =
            self.segment.vertices().iter().map(|v| v.topic().to_string()).collect();
        topics.sort();
        let expected: Vec<_> = self.present.keys().map(|&which| TOPICS[which]).collect();
        assert_eq!(topics, expected);
        for old in &mut self.gone {
            assert!(matches!(old.vertex.latest(), Err(Error::Gone(_))));
            assert!(matches!(old.vertex.as_of(at(50)), Err(Error::Gone(_))));
            assert!(matches!(old.vertex.range(at(0)..=at(99)), Err(Error::Gone(_))));
            let value = value(old.model.value_type, 1);
            let sample = Sample::measured(at(1), value);
            assert!(matches!(old.writer.publish_sample(&sample), Err(Error::Gone(_))));
            for (cursor, _) in &mut old.cursors {
                assert!(matches!(cursor.try_next(), Err(Error::Gone(_))));
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Register { topic, value_type, log_slots } => {
                self.register(topic, TYPES[value_type], 1 << log_slots);
            }
            Step::Unregister { topic } => self.unregister(topic),
            Step::List => self.list(),
            Step::Publish { topic, .. }
            | Step::PublishWrong { topic }
            | Step::Subscribe { topic, .. }
            | Step::Deliver { topic, .. }
            | Step::Latest { topic }
            | Step::Range { topic, .. }
            | Step::AsOf { topic, .. } => {
                if let Some(registered) = self.present.get_mut(&topic) {
                    registered.step(step);
                }
            }
        }
    }
}

impl Registered {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Publish { value: number, time, predicted, .. } => {
                let value = value(self.model.value_type, number);
                let bound = f64::from(number) / 4.0;
                let origin = if predicted { Origin::Predicted { bound } } else { Origin::Measured };
                let sample = Sample { time: at(time), value, origin };
                let done = self.writer.publish_sample(&sample).expect("registered");
                assert_eq!(done, self.model.publish(sample.time, sample.value, origin));
            }
            Step::PublishWrong { .. } => {
                let wrong = TYPES.into_iter().find(|t| *t != self.model.value_type);
                let sample = Sample::measured(at(500), value(wrong.expect("there are four"), 1));
                let done = self.writer.publish_sample(&sample);
                assert!(matches!(done, Err(Error::WrongType { .. })), "{done:?}");
            }
            Step::Subscribe { oldest, .. } => {
                let count = self.model.samples.len();
                let first = if oldest { count.saturating_sub(self.model.slots) } else { count };
                let vertex = &self.vertex;
                let cursor =
                    if oldest { vertex.subscribe_from_oldest() } else { vertex.subscribe() };
                self.cursors.push((cursor, first));
            }
            Step::Deliver { most, .. } => self.deliver(most),
            Step::Latest { .. } => self.latest(),
            Step::Range { from, to, .. } => self.range(at(from), at(to)),
            Step::AsOf { time, .. } => self.as_of(at(time)),
            Step::Register { .. } | Step::Unregister { .. } | Step::List => unreachable!(),
        }
        assert_eq!(self.vertex.count(), self.model.samples.len() as u64);
    }

    fn deliver(&mut self, most: usize) {
        for (cursor, next) in &mut self.cursors {
            for _ in 0..most {
                match cursor.try_next().expect("registered") {
                    None => {
                        assert_eq!(*next, self.model.samples.len(), "samples were withheld");
                        break;
                    }
                    Some(Delivery::Lost(lost)) => {
                        assert!(!self.model.kept(*next), "a sample in memory was lost");
                        for _ in 0..lost {
                            assert!(!self.model.kept(*next), "a sample in memory was lost");
                            *next += 1;
                        }
                    }
                    Some(Delivery::Sample(sample)) => {
                        let expected = &self.model.samples[*next];
                        assert!(same(&sample, expected), "{sample:?} is not {expected:?}");
                        assert!(self.model.kept(*next));
                        *next += 1;
                    }
                }
            }
        }
    }

    fn latest(&self) {
        match self.model.samples.last() {
            None => assert!(matches!(self.vertex.latest(), Err(Error::Empty(_)))),
            Some(expected) => {
                let reading = self.vertex.latest().expect("published");
                assert!(same(&reading.sample, expected), "{reading:?} is not {expected:?}");
                assert_eq!(reading.checked_at, self.model.checked_at);
            }
        }
    }

    fn range(&self, from: Timestamp, to: Timestamp) {
        let found = self.vertex.range(from..=to).expect("registered");
        // From the newest sample back to the first that is missing: older samples are out of reach.
        let (mut expected, mut complete) = (Vec::new(), true);
        for (ticket, sample) in self.model.samples.iter().enumerate().rev() {
            let wanted = sample.time >= from && sample.time <= to;
            if !self.model.in_slots(ticket) || wanted && !self.model.kept(ticket) {
                complete = false;
                break;
            }
            if sample.time < from {
                break;
            }
            if wanted {
                expected.push(sample);
            }
        }
        expected.reverse();
        assert_eq!(found.complete, complete, "{from} to {to}");
        assert_eq!(found.samples.len(), expected.len(), "{from} to {to}");
        assert!(found.samples.iter().zip(expected).all(|(a, b)| same(a, b)));
    }

    fn as_of(&self, time: Timestamp) {
        let found = self.vertex.as_of(time);
        let held = self.model.samples.iter().rposition(|sample| sample.time <= time);
        match held {
            Some(ticket) if self.model.kept(ticket) => {
                let found = found.expect("it is there").expect("it is there");
                assert!(same(&found, &self.model.samples[ticket]), "{found:?}");
            }
            None if self.model.samples.len() <= self.model.slots => {
                assert!(matches!(found, Ok(None)), "{found:?}");
            }
            _ => assert!(matches!(found, Err(Error::TooOld { .. })), "{found:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_segment_behaves_like_a_list_of_samples(
        steps in proptest::collection::vec(step(), 1..250)
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.list();
        let all: Vec<usize> = world.present.keys().copied().collect();
        for which in all {
            world.unregister(which);
        }
        world.list();
    }
}
