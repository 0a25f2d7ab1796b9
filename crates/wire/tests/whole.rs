//! What a mirror says that it has wholly is what was published, whatever was lost on the way.

use std::collections::VecDeque;

use proptest::prelude::*;
use skopos_model::{Kind, Origin, Timestamp, Topic, Unit, ValueType};
use skopos_wire::{Batch, Content, Description, Mirror, Taken, Told};

/// What may happen, to the vertex of this number where it is about one.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The publisher has one more.
    Come,
    Publish(usize),
    /// It publishes what nobody reads before it is overwritten, and what overwrites it.
    Overwrite(usize),
    Send,
    /// The next batch arrives, or does not.
    Arrive,
    Lose,
    /// Somebody asks; what was answered first arrives.
    AskAll,
    ArriveAll,
    AskOne(usize),
    ArriveOne,
}

fn event() -> impl Strategy<Value = Event> {
    let of = |weight, event: fn(usize) -> Event| (weight, (0usize..4).prop_map(event).boxed());
    let plain = |weight, event| (weight, Just(event).boxed());
    proptest::strategy::Union::new_weighted(vec![
        plain(1, Event::Come),
        of(8, Event::Publish),
        of(1, Event::Overwrite),
        plain(6, Event::Send),
        plain(6, Event::Arrive),
        plain(2, Event::Lose),
        plain(2, Event::AskAll),
        plain(2, Event::ArriveAll),
        of(1, Event::AskOne),
        plain(1, Event::ArriveOne),
    ])
}

/// A sample that was published: when, and in which batch or as what was lost before which.
#[derive(Debug)]
struct Published {
    index: u32,
    time: i64,
    batch: Option<u64>,
}

/// A publisher, a mirror, and what is between them.
#[derive(Default)]
struct World {
    clock: i64,
    sequence: u64,
    vertices: u32,
    published: Vec<Published>,
    pending: Batch,
    on_the_way: VecDeque<Batch>,
    snapshots: VecDeque<Batch>,
    fresh: VecDeque<Batch>,
    mirror: Mirror,
    /// Until which batch the mirror has heard.
    heard: u64,
}

fn told(index: u32, time: i64) -> Told {
    let (time, value) = (Timestamp::from_nanos(time), Content::Bits(time as u64));
    Told { index, time, origin: Origin::Measured, value }
}

fn description(index: u32) -> Description {
    let topic = Topic::new(&format!("n/{index}")).expect("a topic");
    Description { index, topic, unit: Unit::NONE, kind: Kind::Gauge, value_type: ValueType::U64 }
}

impl World {
    fn happen(&mut self, event: Event) {
        self.clock += 1;
        match event {
            Event::Come => {
                self.pending.described.push(description(self.vertices));
                self.vertices += 1;
            }
            Event::Publish(n) if n < self.vertices as usize => self.publish(n as u32),
            Event::Overwrite(n) if n < self.vertices as usize => {
                let (index, time) = (n as u32, self.clock);
                self.published.push(Published { index, time, batch: None });
                self.pending.samples.retain(|told| told.index != index);
                self.pending.described.push(description(index));
                self.clock += 1;
                self.publish(index);
            }
            Event::Send => self.send(),
            Event::Arrive => {
                let Some(batch) = self.on_the_way.pop_front() else { return };
                let sequence = batch.sequence;
                if self.mirror.take(batch, &mut ()) != Taken::TooEarly {
                    self.heard = self.heard.max(sequence);
                }
            }
            Event::Lose => drop(self.on_the_way.pop_front()),
            Event::AskAll => {
                let snapshot = self.snapshot();
                self.snapshots.push_back(snapshot);
            }
            Event::ArriveAll => {
                let Some(snapshot) = self.snapshots.pop_front() else { return };
                self.heard = self.heard.max(snapshot.sequence);
                self.mirror.reset(vec![snapshot], &mut ());
            }
            Event::AskOne(n) => {
                let last = self.published.iter().rfind(|p| p.index as usize == n);
                let Some(last) = last else { return };
                let (described, samples) = (description(last.index), told(last.index, last.time));
                let (described, samples) = (vec![described], vec![samples]);
                self.fresh.push_back(Batch { described, samples, ..Batch::default() });
            }
            Event::ArriveOne => {
                let Some(fresh) = self.fresh.pop_front() else { return };
                self.mirror.freshen(fresh, &mut ());
            }
            _ => {}
        }
    }

    fn publish(&mut self, index: u32) {
        self.published.push(Published { index, time: self.clock, batch: None });
        self.pending.samples.push(told(index, self.clock));
    }

    fn send(&mut self) {
        self.sequence += 1;
        let unsent = self.published.iter_mut().filter(|p| p.batch.is_none());
        unsent.for_each(|p| p.batch = Some(self.sequence));
        let (sequence, sent_at) = (self.sequence, Timestamp::from_nanos(self.clock));
        let pending = std::mem::take(&mut self.pending);
        self.on_the_way.push_back(Batch { sequence, sent_at, ..pending });
    }

    /// Of what was sent.
    fn snapshot(&mut self) -> Batch {
        self.send();
        let last = |index| self.published.iter().rfind(|p| p.index == index);
        let samples = (0..self.vertices).filter_map(last).map(|p| told(p.index, p.time));
        let (sequence, sent_at) = (self.sequence, Timestamp::from_nanos(self.clock));
        let (samples, described) = (samples.collect(), (0..self.vertices).map(description));
        let described = described.collect();
        Batch { sequence, sent_at, described, samples, ..Batch::default() }
    }

    /// What the mirror says that it has, and what it should have then.
    fn claims(&self) -> Vec<(Vec<i64>, Vec<i64>)> {
        let claim = |vertex: &skopos_wire::Vertex| {
            let since = vertex.whole_since()?.as_nanos();
            let kept = vertex.recent.iter().map(|sample| sample.time.as_nanos());
            let kept: Vec<i64> = kept.filter(|time| *time >= since).collect();
            let last = kept.last().copied().unwrap_or(i64::MIN);
            let is_due = |p: &&Published| {
                let is_heard = p.batch.is_some_and(|batch| batch <= self.heard);
                p.index == vertex.description.index
                    && p.time >= since
                    && (is_heard || p.time <= last)
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
    fn what_is_said_to_be_whole_is_what_was_published(
        events in proptest::collection::vec(event(), 1..120),
    ) {
        let mut world = World::default();
        for event in events {
            world.happen(event);
            for (kept, due) in world.claims() {
                prop_assert_eq!(kept, due, "after {:?}", event);
            }
        }
        // Once a snapshot says all, all of it is whole from then on. One that was under way may be asked for
        // again.
        for _ in 0..2 {
            world.happen(Event::AskAll);
            while !world.snapshots.is_empty() {
                world.happen(Event::ArriveAll);
            }
        }
        prop_assert!(world.mirror.is_whole());
        let (all, claims) = (world.mirror.vertices().len(), world.claims());
        prop_assert_eq!((all, claims.len()), (world.vertices as usize, all));
        claims.into_iter().try_for_each(|(kept, due)| { prop_assert_eq!(kept, due); Ok(()) })?;
    }
}

/// A mirror of one vertex that has had a snapshot and these batches, of which each tells one sample.
fn heard(batches: impl Iterator<Item = u64>) -> Mirror {
    let mut mirror = Mirror::default();
    mirror.reset(vec![Batch { described: vec![description(0)], ..Batch::default() }], &mut ());
    for n in batches {
        let samples = vec![told(0, n as i64)];
        mirror.take(Batch { sequence: n, samples, ..Batch::default() }, &mut ());
    }
    mirror
}

fn since(mirror: &Mirror) -> Option<i64> {
    mirror.vertices().next().and_then(|v| v.whole_since()).map(Timestamp::as_nanos)
}

#[test]
fn a_vertex_that_did_not_change_meanwhile_is_as_whole_as_before() {
    let mut mirror = heard(1..=5);
    assert_eq!(since(&mirror), Some(1));
    // Another batch is lost: nobody knows whose.
    mirror.take(Batch { sequence: 7, ..Batch::default() }, &mut ());
    assert_eq!(since(&mirror), None);
    let (described, samples) = (vec![description(0)], vec![told(0, 5)]);
    let snapshot = Batch { sequence: 7, described, samples, ..Batch::default() };
    mirror.reset(vec![snapshot], &mut ());
    assert_eq!(since(&mirror), Some(1));
    // What goes because there is no room is here no more.
    assert_eq!(since(&heard(1..=40)), Some(9));
    // What is no value of the vertex is lost as well.
    let mut mirror = heard(1..=5);
    let structured = Content::Structured(skopos_model::Structured::text("what"));
    let samples = vec![Told { value: structured, ..told(0, 6) }];
    mirror.take(Batch { sequence: 6, samples, ..Batch::default() }, &mut ());
    assert_eq!((since(&mirror), mirror.refused()), (None, 1));
}

/// Who asks for all topics that begin in some way wants those too that their node has no more.
#[test]
fn topics_are_all_known_since_the_last_one_went() {
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
    assert_eq!(mirror.take(batch(5, 50), &mut ()), Taken::Gap(1));
    assert_eq!(mirror.topics_since(), None, "what was lost may have described and ended one");
    mirror.reset(vec![batch(6, 60)], &mut ());
    assert_eq!(mirror.topics_since(), Some(at(60)));
}
