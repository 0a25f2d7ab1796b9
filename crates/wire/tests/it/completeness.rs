//! A vertex that is complete since a time has each sample that was published since, whichever batches
//! were lost.

use std::collections::VecDeque;

use proptest::prelude::*;
use skopos_model::{Kind, Origin, Timestamp, Topic, Unit, ValueType};
use skopos_wire::{Batch, BatchOutcome, Content, Description, IndexedSample, Mirror};

/// An event; the number is that of its vertex.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The publisher adds a vertex.
    Add,
    Publish(usize),
    /// It publishes a sample that is overwritten before it is sent, and the one that overwrites it.
    Overwrite(usize),
    /// It sends a batch.
    Send,
    /// The next batch arrives.
    Arrive,
    /// The next batch is lost.
    Lose,
    /// The follower requests a snapshot.
    RequestSnapshot,
    /// The oldest requested snapshot arrives.
    SnapshotArrives,
    /// The follower requests a measurement.
    RequestTopic(usize),
    /// The oldest requested measurement arrives.
    TopicArrives,
}

fn event() -> impl Strategy<Value = Event> {
    let of = |weight, event: fn(usize) -> Event| (weight, (0usize..4).prop_map(event).boxed());
    let plain = |weight, event| (weight, Just(event).boxed());
    proptest::strategy::Union::new_weighted(vec![
        plain(1, Event::Add),
        of(8, Event::Publish),
        of(1, Event::Overwrite),
        plain(6, Event::Send),
        plain(6, Event::Arrive),
        plain(2, Event::Lose),
        plain(2, Event::RequestSnapshot),
        plain(2, Event::SnapshotArrives),
        of(1, Event::RequestTopic),
        plain(1, Event::TopicArrives),
    ])
}

/// A published sample. Its batch is the one that has it, or the one before which it was overwritten.
#[derive(Debug)]
struct Published {
    index: u32,
    time: i64,
    batch: Option<u64>,
}

/// A publisher, a mirror, and the messages between them.
#[derive(Default)]
struct World {
    clock: i64,
    sequence: u64,
    vertices: u32,
    published: Vec<Published>,
    pending: Batch,
    in_flight: VecDeque<Batch>,
    snapshots: VecDeque<Batch>,
    measured: VecDeque<Batch>,
    mirror: Mirror,
    /// The last batch that the mirror has or that a snapshot covers.
    received: u64,
}

fn sample(index: u32, time: i64) -> IndexedSample {
    let (time, value) = (Timestamp::from_nanos(time), Content::Bits(time as u64));
    IndexedSample { index, time, origin: Origin::Measured, value }
}

fn description(index: u32) -> Description {
    let topic = Topic::new(&format!("n/{index}")).expect("a topic");
    Description { index, topic, unit: Unit::NONE, kind: Kind::Gauge, value_type: ValueType::U64 }
}

impl World {
    fn happen(&mut self, event: Event) {
        self.clock += 1;
        match event {
            Event::Add => {
                self.pending.described.push(description(self.vertices));
                self.vertices += 1;
            }
            Event::Publish(n) if n < self.vertices as usize => self.publish(n as u32),
            Event::Overwrite(n) if n < self.vertices as usize => {
                let (index, time) = (n as u32, self.clock);
                self.published.push(Published { index, time, batch: None });
                self.pending.samples.retain(|sample| sample.index != index);
                self.pending.described.push(description(index));
                self.clock += 1;
                self.publish(index);
            }
            Event::Send => self.send(),
            Event::Arrive => {
                let Some(batch) = self.in_flight.pop_front() else { return };
                let sequence = batch.sequence;
                if self.mirror.take(batch, &mut ()) != BatchOutcome::NoSnapshot {
                    self.received = self.received.max(sequence);
                }
            }
            Event::Lose => drop(self.in_flight.pop_front()),
            Event::RequestSnapshot => {
                let snapshot = self.snapshot();
                self.snapshots.push_back(snapshot);
            }
            Event::SnapshotArrives => {
                let Some(snapshot) = self.snapshots.pop_front() else { return };
                self.received = self.received.max(snapshot.sequence);
                self.mirror.reset(vec![snapshot], &mut ());
            }
            Event::RequestTopic(n) => {
                let last = self.published.iter().rfind(|p| p.index as usize == n);
                let Some(last) = last else { return };
                let (described, samples) = (description(last.index), sample(last.index, last.time));
                let (described, samples) = (vec![described], vec![samples]);
                self.measured.push_back(Batch { described, samples, ..Batch::default() });
            }
            Event::TopicArrives => {
                let Some(batch) = self.measured.pop_front() else { return };
                self.mirror.refresh(batch, &mut ());
            }
            _ => {}
        }
    }

    fn publish(&mut self, index: u32) {
        self.published.push(Published { index, time: self.clock, batch: None });
        self.pending.samples.push(sample(index, self.clock));
    }

    fn send(&mut self) {
        self.sequence += 1;
        let unsent = self.published.iter_mut().filter(|p| p.batch.is_none());
        unsent.for_each(|p| p.batch = Some(self.sequence));
        let (sequence, sent_at) = (self.sequence, Timestamp::from_nanos(self.clock));
        let pending = std::mem::take(&mut self.pending);
        self.in_flight.push_back(Batch { sequence, sent_at, ..pending });
    }

    /// Sends the pending samples, and makes a snapshot of everything that was sent.
    fn snapshot(&mut self) -> Batch {
        self.send();
        let last = |index| self.published.iter().rfind(|p| p.index == index);
        let samples = (0..self.vertices).filter_map(last).map(|p| sample(p.index, p.time));
        let (sequence, sent_at) = (self.sequence, Timestamp::from_nanos(self.clock));
        let (samples, described) = (samples.collect(), (0..self.vertices).map(description));
        let described = described.collect();
        Batch { sequence, sent_at, described, samples, ..Batch::default() }
    }

    /// For each vertex that claims to be complete: the times that it has, and the times that it should
    /// have.
    fn claims(&self) -> Vec<(Vec<i64>, Vec<i64>)> {
        let claim = |vertex: &skopos_wire::Vertex| {
            let since = vertex.complete_since()?.as_nanos();
            let kept = vertex.recent.iter().map(|sample| sample.time.as_nanos());
            let kept: Vec<i64> = kept.filter(|time| *time >= since).collect();
            let last = kept.last().copied().unwrap_or(i64::MIN);
            let is_due = |p: &&Published| {
                let is_received = p.batch.is_some_and(|batch| batch <= self.received);
                p.index == vertex.description.index
                    && p.time >= since
                    && (is_received || p.time <= last)
            };
            let due = self.published.iter().filter(is_due).map(|p| p.time).collect();
            Some((kept, due))
        };
        self.mirror.vertices().filter_map(claim).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_complete_vertex_has_each_published_sample(
        events in proptest::collection::vec(event(), 1..120),
    ) {
        let mut world = World::default();
        for event in events {
            world.happen(event);
            for (kept, due) in world.claims() {
                prop_assert_eq!(kept, due, "after {:?}", event);
            }
        }
        // After a complete snapshot every vertex is complete. A snapshot that was in flight may be too
        // old, so a second one is requested.
        for _ in 0..2 {
            world.happen(Event::RequestSnapshot);
            while !world.snapshots.is_empty() {
                world.happen(Event::SnapshotArrives);
            }
        }
        prop_assert!(world.mirror.is_complete());
        let (all, claims) = (world.mirror.vertices().len(), world.claims());
        prop_assert_eq!((all, claims.len()), (world.vertices as usize, all));
        claims.into_iter().try_for_each(|(kept, due)| { prop_assert_eq!(kept, due); Ok(()) })?;
    }
}

/// A mirror of one vertex that has received a snapshot and these batches, each with one sample.
fn mirror_of(batches: impl Iterator<Item = u64>) -> Mirror {
    let mut mirror = Mirror::default();
    mirror.reset(vec![Batch { described: vec![description(0)], ..Batch::default() }], &mut ());
    for n in batches {
        let samples = vec![sample(0, n as i64)];
        mirror.take(Batch { sequence: n, samples, ..Batch::default() }, &mut ());
    }
    mirror
}

fn since(mirror: &Mirror) -> Option<i64> {
    mirror.vertices().next().and_then(|v| v.complete_since()).map(Timestamp::as_nanos)
}

#[test]
fn a_vertex_that_did_not_change_stays_complete_since_the_same_time() {
    let mut mirror = mirror_of(1..=5);
    assert_eq!(since(&mirror), Some(1));
    // A batch is lost; it may have had a sample of this vertex.
    mirror.take(Batch { sequence: 7, ..Batch::default() }, &mut ());
    assert_eq!(since(&mirror), None);
    let (described, samples) = (vec![description(0)], vec![sample(0, 5)]);
    let snapshot = Batch { sequence: 7, described, samples, ..Batch::default() };
    mirror.reset(vec![snapshot], &mut ());
    assert_eq!(since(&mirror), Some(1));
    // An evicted sample is missing.
    assert_eq!(since(&mirror_of(1..=40)), Some(9));
    // A sample with a value of another type is lost as well.
    let mut mirror = mirror_of(1..=5);
    let structured = Content::Structured(skopos_model::Structured::text("a text"));
    let samples = vec![IndexedSample { value: structured, ..sample(0, 6) }];
    mirror.take(Batch { sequence: 6, samples, ..Batch::default() }, &mut ());
    assert_eq!((since(&mirror), mirror.refused()), (None, 1));
}

/// A question by prefix also wants topics that their node has removed, and a mirror forgets these.
#[test]
fn topics_are_complete_since_the_last_removal() {
    let at = Timestamp::from_nanos;
    let described = |index| Description {
        index,
        topic: Topic::new(&format!("n/{index}")).expect("a topic"),
        unit: Unit::NONE,
        kind: Kind::Gauge,
        value_type: ValueType::U64,
    };
    let mut mirror = Mirror::default();
    assert_eq!(mirror.topics_since(), None);
    let all =
        Batch { sequence: 1, sent_at: at(10), described: vec![described(0)], ..Batch::default() };
    mirror.reset(vec![all], &mut ());
    assert_eq!(mirror.topics_since(), Some(at(10)));
    let batch = |sequence, time| Batch { sequence, sent_at: at(time), ..Batch::default() };
    mirror.take(batch(2, 20), &mut ());
    assert_eq!(mirror.topics_since(), Some(at(10)));
    mirror.take(Batch { gone: vec![0], ..batch(3, 30) }, &mut ());
    assert_eq!(mirror.topics_since(), Some(at(30)));
    assert_eq!(mirror.take(batch(5, 50), &mut ()), BatchOutcome::Gap(1));
    assert_eq!(mirror.topics_since(), None, "the lost batch may have added and removed a topic");
    mirror.reset(vec![batch(6, 60)], &mut ());
    assert_eq!(mirror.topics_since(), Some(at(60)));
}
