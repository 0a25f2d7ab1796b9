//! Batches survive encoding, and a mirror that misses some of them is right again after a snapshot.

use proptest::prelude::*;
use skopos_model::{
    Kind, Origin, Sample, Structured, Timestamp, Topic, TopicPattern, Unit, ValueType,
};
use skopos_wire::{
    Batch, BatchOutcome, Checked, Content, Description, Error, IndexedSample, Interest,
    MAX_BATCH_BYTES, Mirror, MirrorWatcher,
};

fn described() -> impl Strategy<Value = Description> {
    let types = [ValueType::F64, ValueType::I64, ValueType::U64, ValueType::Structured];
    (0u32..40, "[a-z]{1,9}(/[a-z0-9_]{1,9}){0,3}", proptest::sample::select(types.to_vec()))
        .prop_map(|(index, topic, value_type)| Description {
            index,
            topic: Topic::new(&topic).expect("a topic"),
            unit: Unit::BYTES,
            kind: Kind::Counter,
            value_type,
        })
}

fn sample() -> impl Strategy<Value = IndexedSample> {
    let origin = prop_oneof![
        3 => Just(Origin::Measured),
        1 => (0.0f64..9.0).prop_map(|bound| Origin::Predicted { bound }),
        1 => Just(Origin::Unknown),
    ];
    let value = prop_oneof![
        3 => any::<u64>().prop_map(Content::Bits),
        1 => "[ -~]{0,20}".prop_map(|text| Content::Structured(Structured::text(&text))),
    ];
    (0u32..50, any::<i64>(), origin, value).prop_map(|(index, nanos, origin, value)| {
        IndexedSample { index, time: Timestamp::from_nanos(nanos), origin, value }
    })
}

fn batch() -> impl Strategy<Value = Batch> {
    let runs = proptest::collection::vec((any::<u32>(), 0u32..10_000), 1..4);
    let checked = (any::<i64>(), runs)
        .prop_map(|(nanos, runs)| Checked { at: Timestamp::from_nanos(nanos), runs });
    (
        (any::<u64>(), any::<i64>()),
        proptest::collection::vec(described(), 0..5),
        proptest::collection::vec(any::<u32>(), 0..5),
        proptest::collection::vec(sample(), 0..20),
        proptest::collection::vec(checked, 0..3),
    )
        .prop_map(|((sequence, sent), described, gone, samples, checked)| Batch {
            sequence,
            sent_at: Timestamp::from_nanos(sent),
            described,
            gone,
            samples,
            checked,
        })
}

proptest! {
    #[test]
    fn a_batch_survives_encoding(batch in batch()) {
        let bytes = batch.encode();
        prop_assert!(bytes.len() <= batch.most_bytes());
        prop_assert_eq!(Batch::decode(&bytes).expect("a batch"), batch);
    }

    #[test]
    fn the_parts_of_a_batch_have_its_content(batch in batch(), times in 1usize..400) {
        let mut long = batch.clone();
        for _ in 1..times {
            long.described.extend(batch.described.clone());
            long.samples.extend(batch.samples.clone());
            long.gone.extend(batch.gone.clone());
            long.checked.extend(batch.checked.clone());
        }
        let mut again = Batch { sequence: long.sequence, sent_at: long.sent_at, ..Batch::default() };
        for part in long.clone().split() {
            prop_assert!(part.encode().len() <= MAX_BATCH_BYTES);
            for short in part.clone().split_for_followers() {
                prop_assert!(short.encode().len() <= 13_000);
            }
            prop_assert_eq!((part.sequence, part.sent_at), (long.sequence, long.sent_at));
            again.described.extend(part.described);
            again.samples.extend(part.samples);
            again.gone.extend(part.gone);
            again.checked.extend(part.checked);
        }
        prop_assert_eq!(again, long.clone());
    }

    #[test]
    fn a_cut_or_longer_message_is_refused(batch in batch(), cut in any::<prop::sample::Index>()) {
        let mut bytes = batch.encode();
        prop_assert!(Batch::decode(&bytes[..cut.index(bytes.len())]).is_err());
        bytes.push(0);
        prop_assert!(matches!(Batch::decode(&bytes), Err(Error::Long(1))));
    }

    #[test]
    fn damage_is_never_fatal(batch in batch(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = batch.encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(batch) = Batch::decode(&bytes) {
            let mut mirror = Mirror::default();
            mirror.reset(vec![batch.clone()], &mut ());
            let _ = mirror.take(batch, &mut ());
        }
    }

    #[test]
    fn a_snapshot_that_batches_overtook_fills_the_gap(overtakers in 0u64..5, goes in any::<bool>()) {
        let vertex = |index| Description { index, topic: Topic::new(&format!("n/{index}")).expect("a topic"), unit: Unit::NONE, kind: Kind::Gauge, value_type: ValueType::U64 };
        let at = |sequence, described: &[u32], gone: &[u32]| Batch { sequence, described: described.iter().map(|i| vertex(*i)).collect(), gone: gone.to_vec(), ..Batch::default() };
        let mut mirror = Mirror::default();
        mirror.reset(vec![at(1, &[0], &[])], &mut ());
        // The second batch, which described 1, is lost; the third describes 2.
        prop_assert_eq!(mirror.take(at(3, &[2], &[]), &mut ()), BatchOutcome::Gap(1));
        prop_assert!(!mirror.is_complete());
        let snapshot = at(3, &[0, 1, 2], &[]);
        for n in 0..overtakers {
            mirror.take(at(4 + n, &[10 + n as u32], &[]), &mut ());
        }
        if goes {
            mirror.take(at(4 + overtakers, &[], &[0]), &mut ());
        }
        mirror.reset(vec![snapshot], &mut ());
        prop_assert!(mirror.is_complete());
        let mut there: Vec<u32> = mirror.vertices().map(|v| v.description.index).collect();
        there.sort_unstable();
        let mut expected: Vec<u32> = if goes { vec![1, 2] } else { vec![0, 1, 2] };
        expected.extend((0..overtakers as u32).map(|n| 10 + n));
        prop_assert_eq!(there, expected);
    }

    #[test]
    fn a_mirror_is_right_again_after_a_snapshot(missing in proptest::collection::vec(any::<bool>(), 1..30)) {
        let vertex = Description { index: 0, topic: Topic::new("n/a").expect("a topic"), unit: Unit::NONE, kind: Kind::Gauge, value_type: ValueType::U64 };
        let sample = |n: u64| IndexedSample { index: 0, time: Timestamp::from_nanos(n as i64), origin: Origin::Measured, value: Content::Bits(n) };
        let mut mirror = Mirror::default();
        prop_assert_eq!(mirror.take(Batch { sequence: 1, ..Batch::default() }, &mut ()), BatchOutcome::NoSnapshot);
        mirror.reset(vec![Batch { described: vec![vertex.clone()], ..Batch::default() }], &mut ());
        let mut gap = 0;
        for (n, is_missing) in (1u64..).zip(&missing) {
            if *is_missing {
                gap += 1;
                continue;
            }
            let outcome = mirror.take(Batch { sequence: n, samples: vec![sample(n)], ..Batch::default() }, &mut ());
            prop_assert_eq!(outcome, if gap == 0 { BatchOutcome::Applied } else { BatchOutcome::Gap(gap) });
            gap = 0;
        }
        let last = missing.len() as u64;
        mirror.reset(vec![Batch { sequence: last, described: vec![vertex], samples: vec![sample(last)], ..Batch::default() }], &mut ());
        let latest: Vec<_> = mirror.vertices().map(|v| v.recent.last_time().map(|t| t.as_nanos())).collect();
        prop_assert_eq!(latest, [Some(last as i64)]);
        prop_assert_eq!(mirror.lost(), missing.iter().filter(|m| **m).count() as u64);
        prop_assert_eq!(mirror.refused(), 0);
    }
}

/// Snapshots have a lower priority than batches and another queue, so each of them may overtake batches.
#[test]
fn batches_that_two_snapshots_overtook_are_not_lost() {
    let numbered = |sequence| Batch { sequence, ..Batch::default() };
    let mut mirror = Mirror::default();
    for (as_of, lost) in [(3, 0), (5, 2), (6, 3)] {
        mirror.reset(vec![numbered(as_of)], &mut ());
        assert_eq!(mirror.lost(), lost, "until they come");
    }
    for (sequence, lost) in [(4, 2), (5, 1), (6, 0), (6, 0), (4, 0)] {
        assert_eq!(mirror.take(numbered(sequence), &mut ()), BatchOutcome::Duplicate);
        assert_eq!(mirror.lost(), lost, "{sequence}");
    }
    // A batch that came between both ends the first.
    for (as_of, sequence, lost) in [(8, 9, 2), (10, 10, 2)] {
        mirror.reset(vec![numbered(as_of)], &mut ());
        mirror.take(numbered(sequence), &mut ());
        assert_eq!(mirror.lost(), lost);
    }
}

/// A slow subscriber, or one that lost its connection, gets no batches until a snapshot arrives.
#[test]
fn batches_before_a_snapshot_are_lost_until_they_arrive() {
    let at = |sequence| Batch { sequence, ..Batch::default() };
    let mut mirror = Mirror::default();
    mirror.reset(vec![at(5)], &mut ());
    assert_eq!((mirror.lost(), mirror.take(at(6), &mut ())), (0, BatchOutcome::Applied));
    mirror.reset(vec![at(16)], &mut ());
    assert_eq!(mirror.lost(), 10);
    // The snapshot overtook these batches: they arrive late, and are not lost.
    assert_eq!(mirror.take(at(15), &mut ()), BatchOutcome::Duplicate);
    assert_eq!(mirror.take(at(16), &mut ()), BatchOutcome::Duplicate);
    assert_eq!(mirror.lost(), 8);
    assert_eq!(mirror.take(at(16), &mut ()), BatchOutcome::Duplicate, "twice");
    assert_eq!((mirror.lost(), mirror.take(at(17), &mut ())), (8, BatchOutcome::Applied));
    mirror.reset(vec![at(17)], &mut ());
    assert_eq!(mirror.lost(), 8);
}

#[test]
fn removed_indices_take_bounded_memory_and_a_snapshot_makes_room() {
    /// Number of vertices that a publisher can have.
    const MOST: u32 = 65_536;
    let gone = |sequence, gone: std::ops::Range<u32>| Batch {
        sequence,
        gone: gone.collect(),
        ..Batch::default()
    };
    let mut mirror = Mirror::default();
    mirror.reset(vec![Batch { sequence: 1, ..Batch::default() }], &mut ());
    assert_eq!(mirror.take(gone(2, 0..MOST), &mut ()), BatchOutcome::Applied);
    assert!(mirror.is_complete(), "there is room for all vertices");
    assert_eq!(mirror.take(gone(3, MOST..MOST + 1), &mut ()), BatchOutcome::Applied);
    assert!(!mirror.is_complete(), "an index is not kept: a late description would bring it back");
    let late = |sequence| Batch {
        sequence,
        described: vec![vertex(0, "n/a"), vertex(MOST - 1, "n/b")],
        ..Batch::default()
    };
    mirror.take(late(4), &mut ());
    assert_eq!(mirror.vertices().len(), 0, "those that are kept stay away");
    mirror.reset(vec![Batch { sequence: 4, ..Batch::default() }], &mut ());
    assert!(mirror.is_complete());
    assert_eq!(mirror.take(gone(5, 0..MOST), &mut ()), BatchOutcome::Applied);
    assert!(mirror.is_complete(), "the snapshot made room");
}

/// Records the changes of a mirror.
#[derive(Default)]
struct Recorder(Vec<String>);

impl MirrorWatcher for Recorder {
    fn added(&mut self, description: &Description) {
        self.0.push(format!("+{}", description.topic));
    }
    fn sample(&mut self, topic: &Topic, sample: &Sample) {
        self.0.push(format!("{topic}={} at {}", sample.value, sample.time.as_nanos()));
    }
    fn checked(&mut self, topic: &Topic, at: Timestamp) {
        self.0.push(format!("{topic} checked at {}", at.as_nanos()));
    }
    fn removed(&mut self, topic: &Topic) {
        self.0.push(format!("-{topic}"));
    }
}

fn vertex(index: u32, topic: &str) -> Description {
    let (unit, kind, value_type) = (Unit::NONE, Kind::Gauge, ValueType::U64);
    Description { index, topic: Topic::new(topic).expect("a topic"), unit, kind, value_type }
}

#[test]
fn a_watcher_receives_each_change_of_a_wanted_topic_once() {
    let sample = |index, n: u64| IndexedSample {
        index,
        time: Timestamp::from_nanos(n as i64),
        origin: Origin::Measured,
        value: Content::Bits(n),
    };
    let all = || vec![vertex(0, "n/a/x"), vertex(1, "n/b/y"), vertex(2, "n/a/z")];
    let pattern = TopicPattern::new("*/a/*").expect("a pattern");
    let mut mirror = Mirror::new(Interest::new(&[pattern], "m"));
    let mut recorder = Recorder::default();
    let samples = vec![sample(0, 1), sample(1, 1)];
    let snapshot = Batch { sequence: 1, described: all(), samples, ..Batch::default() };
    mirror.reset(vec![snapshot.clone()], &mut recorder);
    assert_eq!(recorder.0, ["+n/a/x", "+n/a/z", "n/a/x=1 at 1"]);
    recorder.0.clear();
    mirror.reset(vec![snapshot], &mut recorder);
    assert_eq!(recorder.0, [""; 0], "nothing is new");
    let checked = vec![Checked { at: Timestamp::from_nanos(9), runs: vec![(0, 3)] }];
    let batch = Batch {
        sequence: 2,
        samples: vec![sample(1, 2), sample(2, 2)],
        checked,
        gone: vec![0, 1],
        described: vec![vertex(3, "n/a/x")],
        ..Batch::default()
    };
    mirror.take(batch, &mut recorder);
    // A topic with another index is removed and added.
    let expected = ["-n/a/x", "+n/a/x", "n/a/z=2 at 2", "n/a/z checked at 9"];
    assert_eq!(recorder.0, expected);
    recorder.0.clear();
    mirror.clear(&mut recorder);
    recorder.0.sort();
    assert_eq!(recorder.0, ["-n/a/x", "-n/a/z"]);
    assert_eq!((mirror.refused(), mirror.lost()), (0, 0));
}

#[test]
fn a_mirror_knows_which_topics_have_new_samples() {
    let sample = |index, n: u64| IndexedSample {
        index,
        time: Timestamp::from_nanos(n as i64),
        origin: Origin::Measured,
        value: Content::Bits(n),
    };
    let mut mirror = Mirror::new(Interest::default());
    let described = vec![vertex(0, "n/a"), vertex(1, "n/b"), vertex(2, "n/c")];
    let samples = vec![sample(0, 1), sample(1, 1)];
    let snapshot = Batch { sequence: 1, described, samples, ..Batch::default() };
    mirror.reset(vec![snapshot.clone()], &mut Recorder::default());
    let changed = |mirror: &Mirror, since: u64| -> Option<Vec<u32>> {
        Some(mirror.changed_since(since)?.map(|(index, _)| index).collect())
    };
    let (arrangement, total) = (mirror.arrangement(), mirror.samples_total());
    assert_eq!((total, changed(&mirror, total)), (2, Some(vec![])));
    let mut sequence = 1;
    let mut take = |mirror: &mut Mirror, samples: Vec<IndexedSample>, gone: Vec<u32>| {
        sequence += 1;
        let batch = Batch { sequence, samples, gone, ..Batch::default() };
        mirror.take(batch, &mut Recorder::default());
    };
    take(&mut mirror, vec![sample(1, 2), sample(0, 1), sample(1, 3)], vec![]);
    assert_eq!(changed(&mirror, total), Some(vec![1, 1]), "one of them is an old one");
    assert_eq!(mirror.arrangement(), arrangement);
    take(&mut mirror, vec![sample(0, 4), sample(0, 5)], vec![]);
    assert_eq!(changed(&mirror, total), None, "there were too many");
    assert_eq!(changed(&mirror, total + 2), Some(vec![0, 0]));
    assert_eq!(changed(&mirror, total + 99), None, "it is a number of another mirror");
    assert_eq!(mirror.arrangement(), arrangement);
    take(&mut mirror, vec![sample(2, 6)], vec![]);
    let with_first = mirror.arrangement();
    assert!(with_first != arrangement, "a topic has its first sample");
    take(&mut mirror, vec![], vec![0]);
    let without = mirror.arrangement();
    assert!(without != with_first, "a topic is gone");
    mirror.clear(&mut Recorder::default());
    mirror.reset(vec![snapshot], &mut Recorder::default());
    assert!(mirror.arrangement() > without, "all topics went and came");
}

#[test]
fn a_node_publishes_topics_of_its_own_name_alone() {
    let (time, value) = (Timestamp::from_nanos(1), Content::Bits(1));
    let sample =
        |index| IndexedSample { index, time, origin: Origin::Measured, value: value.clone() };
    let mut mirror = Mirror::of_node("n1", Interest::default());
    let mut recorder = Recorder::default();
    let described = vec![vertex(0, "n1/a"), vertex(1, "n2/a"), vertex(2, "n10/a")];
    let samples = vec![sample(0), sample(1), sample(2)];
    mirror
        .reset(vec![Batch { sequence: 1, described, samples, ..Batch::default() }], &mut recorder);
    assert_eq!(recorder.0, ["+n1/a", "n1/a=1 at 1"]);
    assert_eq!(mirror.refused(), 4, "two descriptions and two samples");
    mirror.clear(&mut recorder);
    let described = vec![vertex(0, "n2/a")];
    mirror.reset(vec![Batch { sequence: 1, described, ..Batch::default() }], &mut recorder);
    assert_eq!((mirror.vertices().len(), mirror.refused()), (0, 5));
}

#[test]
fn the_structured_values_of_a_publisher_take_bounded_memory() {
    const VERTICES: u32 = 800;
    let list = format!("[{}]", vec!["0"; 2000].join(","));
    let list = Content::Structured(Structured::from_json(&list).expect("a list"));
    let sample = |index, nanos| {
        let (time, value) = (Timestamp::from_nanos(nanos), list.clone());
        IndexedSample { index, time, origin: Origin::Measured, value }
    };
    let described = |index| Description {
        value_type: ValueType::Structured,
        ..vertex(index, &format!("n1/a{index}"))
    };
    let mut mirror = Mirror::default();
    let described = (0..VERTICES).map(described).collect();
    mirror.reset(vec![Batch { described, ..Batch::default() }], &mut ());
    let mut take = |sequence, gone, samples| {
        mirror.take(Batch { sequence, gone, samples, ..Batch::default() }, &mut ());
        let kept: usize = mirror.vertices().map(|vertex| vertex.recent.iter().count()).sum();
        (kept as u64, mirror.refused())
    };
    let all = (0..VERTICES).map(|index| sample(index, 1)).collect();
    let (kept, refused) = take(1, vec![], all);
    assert!(kept > 0 && kept * 2000 * 32 <= 64 << 20, "{kept} lists of 2,000 values");
    assert_eq!(kept + refused, u64::from(VERTICES), "each refused one is counted");
    // A later sample takes the place of an older one of its vertex.
    assert_eq!(take(2, vec![], vec![sample(0, 2)]), (kept, refused));
    // The places of a vertex that is gone are free again.
    assert_eq!(take(3, vec![1], vec![]), (kept - 1, refused));
    assert_eq!(take(4, vec![], vec![sample(VERTICES - 1, 3)]), (kept, refused));
    assert_eq!(take(5, vec![], vec![sample(VERTICES - 2, 3)]), (kept, refused + 1));
}

#[test]
fn older_structured_values_leave_room_for_the_latest_ones() {
    let list = format!("[{}]", vec!["0"; 2000].join(","));
    let list = Content::Structured(Structured::from_json(&list).expect("a list"));
    let described = |index| Description {
        value_type: ValueType::Structured,
        ..vertex(index, &format!("n1/a{index}"))
    };
    let mut mirror = Mirror::default();
    let described = (0..100).map(described).collect();
    mirror.reset(vec![Batch { described, ..Batch::default() }], &mut ());
    for round in 1..=20 {
        let (time, origin) = (Timestamp::from_nanos(round), Origin::Measured);
        let sample = |index| IndexedSample { index, time, origin, value: list.clone() };
        let samples = (0..100).map(sample).collect();
        mirror.take(Batch { sequence: round as u64, samples, ..Batch::default() }, &mut ());
    }
    assert_eq!(mirror.refused(), 0, "20 lists of each vertex would be too many");
    let latest = |vertex: &skopos_wire::Vertex| vertex.recent.last_time().map(|t| t.as_nanos());
    assert!(mirror.vertices().all(|vertex| latest(vertex) == Some(20)));
}
