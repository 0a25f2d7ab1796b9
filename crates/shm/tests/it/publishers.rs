//! The publisher: names, one holder for each name, types, limits, many threads, clocks that step back.

use std::collections::HashMap;
use std::fs;
use std::sync::Barrier;
use std::time::Duration;

use skopos_model::{Origin, Sample, Scalar, Value, ValueType};
use skopos_shm::{
    Delivery, Error, Host, Interest, Published, Publisher, Segment, Vertex, VertexWriter,
    layout::MAX_SLOTS,
};

use crate::support::{
    at, eventually, must_end, publisher, runtime_dir, spec, structured_sample, topic,
};

/// Makes a publisher with one vertex, and returns the writer and the reader of the vertex.
fn one(value_type: ValueType, slots: u32) -> (tempfile::TempDir, Publisher, VertexWriter, Vertex) {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "one");
    let writer = publisher.register(spec("test/one", value_type).slots(slots)).expect("room");
    let segment = Segment::open(publisher.path()).expect("sound");
    let vertex = segment.find(writer.topic()).expect("registered");
    (dir, publisher, writer, vertex)
}

#[test]
fn a_name_is_held_by_one_living_publisher() {
    let dir = runtime_dir();
    let first = publisher(dir.path(), "taken");
    let made_at = Segment::open(first.path()).expect("sound").created_at();
    match Publisher::builder("taken").dir(dir.path()).create() {
        Err(Error::Held { name, pid, since }) => {
            assert_eq!((name.as_str(), pid, since), ("taken", std::process::id(), made_at));
        }
        other => panic!("{other:?}"),
    }
    drop(publisher(dir.path(), "free"));
    drop(first);
    drop(publisher(dir.path(), "taken"));
}

#[test]
fn a_name_that_is_not_a_file_name_is_refused() {
    let dir = runtime_dir();
    let long = "n".repeat(65);
    let bad = ["", ".", "..", ".hidden", "a/b", "/a", "../a", "A", "a b", "a\0", "ä", "a:b", &long];
    for name in bad {
        let refusal = Publisher::builder(name).dir(dir.path()).create();
        assert!(matches!(&refusal, Err(Error::Name(n)) if n == name), "{name:?}: {refusal:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("ours").count(), 0, "nothing was made");
    for name in ["a", "0", "-", "_", "a.b", "a.seg", "a.new", &"n".repeat(64)] {
        let publisher = publisher(dir.path(), name);
        assert_eq!(Segment::open(publisher.path()).expect("sound").name(), name);
    }
}

#[test]
fn a_duplicate_topic_is_refused_until_it_is_unregistered() {
    let (_dir, publisher, writer, vertex) = one(ValueType::U64, 4);
    let again = || publisher.register(spec("test/one", ValueType::F64));
    assert!(matches!(again(), Err(Error::Duplicate(t)) if t == topic("test/one")));
    writer.publish(1u64).expect("registered");
    publisher.unregister(&writer);
    let other = again().expect("free again");
    other.publish(2.5).expect("registered");
    // Old handles recognise that this is not their vertex.
    assert!(matches!(writer.publish(2u64), Err(Error::Gone(_))));
    assert!(matches!(vertex.latest(), Err(Error::Gone(_))));
    assert!(matches!(vertex.subscribe().try_next(), Err(Error::Gone(_))));
    let found = vertex.segment().find(&topic("test/one")).expect("registered");
    assert_eq!(found.latest().expect("published").as_f64(), Some(2.5));
    publisher.unregister(&writer);
    other.publish(3.5).expect("unregistering twice does not affect the next owner");
}

/// The memory of an unregistered vertex is reused: old readers never read the new vertex.
#[test]
fn every_read_of_a_vertex_that_is_gone_is_an_error() {
    let (_dir, publisher, writer, vertex) = one(ValueType::U64, 4);
    writer.publish_at(at(1), 1u64).expect("registered");
    let mut follower = vertex.subscribe_from_oldest();
    publisher.unregister(&writer);
    let mut check = |when: &str| {
        assert!(matches!(vertex.latest(), Err(Error::Gone(_))), "{when}");
        assert!(matches!(vertex.range(at(0)..=at(9)), Err(Error::Gone(_))), "{when}");
        assert!(matches!(vertex.as_of(at(5)), Err(Error::Gone(_))), "{when}");
        assert!(matches!(follower.try_next(), Err(Error::Gone(_))), "{when}");
        assert!(matches!(vertex.subscribe().try_next(), Err(Error::Gone(_))), "{when}");
    };
    check("unregistered");
    let next = publisher.register(spec("test/next", ValueType::U64).slots(4)).expect("room");
    check("its memory belongs to a new vertex without a sample");
    next.publish_at(at(2), 2u64).expect("registered");
    check("its memory belongs to a new vertex");
}

#[test]
fn closing_a_segment_unregisters_its_vertices() {
    let (_dir, publisher, writer, vertex) = one(ValueType::U64, 4);
    writer.publish(1u64).expect("registered");
    let path = publisher.path().to_owned();
    assert!(vertex.segment().is_alive());
    drop(publisher);
    assert!(!vertex.segment().is_alive(), "closed, though a writer still has the file");
    assert!(matches!(writer.publish(2u64), Err(Error::Gone(_))));
    assert!(matches!(vertex.latest(), Err(Error::Gone(_))));
    assert!(!path.exists());
}

#[test]
fn unregistering_does_not_affect_another_segment() {
    let (_dir, ours, writer, vertex) = one(ValueType::U64, 4);
    let (_dir2, theirs, _, _) = one(ValueType::U64, 4);
    theirs.unregister(&writer);
    assert!(writer.publish(1u64).is_ok(), "another publisher cannot unregister it");
    let (_dir3, _other, stranger, _) = one(ValueType::U64, 4);
    ours.unregister(&stranger);
    assert!(writer.publish(2u64).is_ok(), "it is of another segment with the same index");
    assert_eq!(vertex.latest().expect("published").as_f64(), Some(2.0));
    assert!(stranger.publish(1u64).is_ok());
}

#[test]
fn a_value_of_another_type_is_refused_and_named() {
    let (_dir, publisher, writer, vertex) = one(ValueType::U64, 4);
    let text = structured_sample(1, "[1]");
    let refused = [writer.publish(1.0), writer.publish(1i64), writer.publish_sample(&text)];
    for refused in refused {
        match refused {
            Err(Error::WrongType { wanted, found, .. }) => {
                assert_eq!(wanted, ValueType::U64);
                assert_ne!(found, wanted);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(vertex.latest(), Err(Error::Empty(_))), "nothing was stored");
    let texts = publisher.register(spec("test/text", ValueType::Structured)).expect("room");
    assert!(matches!(texts.publish(1u64), Err(Error::WrongType { .. })));
}

#[test]
fn a_ring_has_a_power_of_two_of_slots() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "slots");
    for slots in [0, 3, 6, 127, MAX_SLOTS + 1, MAX_SLOTS * 2, u32::MAX] {
        let refused = publisher.register(spec("test/a", ValueType::U64).slots(slots));
        assert!(matches!(refused, Err(Error::Slots(s)) if s == slots), "{slots}: {refused:?}");
    }
    let one = publisher.register(spec("test/a", ValueType::U64).slots(1)).expect("room");
    let vertex = Segment::open(publisher.path()).expect("sound").find(one.topic()).expect("there");
    let mut follower = vertex.subscribe();
    for n in 0..5u64 {
        one.publish_at(at(n as i64), n).expect("registered");
    }
    assert_eq!(vertex.latest().expect("published").as_f64(), Some(4.0));
    assert_eq!(follower.try_next().expect("registered"), Some(Delivery::Lost(4)));
    assert!(matches!(follower.try_next(), Ok(Some(Delivery::Sample(_)))));
    assert_eq!(follower.try_next().expect("registered"), None);
    let large = publisher.register(spec("test/b", ValueType::U64).slots(MAX_SLOTS));
    assert!(matches!(large, Err(Error::SegmentFull { what: "bytes", .. })), "{large:?}");
}

#[test]
fn the_error_of_a_full_segment_names_the_resource() {
    let dir = runtime_dir();
    let publisher =
        Publisher::builder("full").dir(dir.path()).max_vertices(2).create().expect("room");
    let a = publisher.register(spec("test/a", ValueType::U64)).expect("room");
    publisher.register(spec("test/b", ValueType::U64)).expect("room");
    match publisher.register(spec("test/c", ValueType::U64)) {
        Err(Error::SegmentFull { segment, what: "vertices", capacity: 2 }) => {
            assert_eq!(segment, "full");
        }
        other => panic!("{other:?}"),
    }
    publisher.unregister(&a);
    publisher.register(spec("test/c", ValueType::U64)).expect("a's place");
    let groups = (0..300).map_while(|n| publisher.group(&format!("g{n}")).ok()).count();
    assert_eq!(groups, 255);
    let refused = publisher.group("one-more");
    assert!(matches!(refused, Err(Error::SegmentFull { what: "groups", .. })), "{refused:?}");
    let long = publisher.group(&"g".repeat(65));
    assert!(matches!(long, Err(Error::Name(_))), "{long:?}");
}

#[test]
fn a_segment_that_no_reader_would_map_is_not_made() {
    let dir = runtime_dir();
    let builder = || Publisher::builder("huge").dir(dir.path());
    for builder in [
        builder().max_bytes(u64::MAX),
        builder().max_bytes((4 << 30) + 1),
        builder().max_vertices(u32::MAX),
    ] {
        let refused = builder.create();
        assert!(matches!(refused, Err(Error::SegmentFull { what: "bytes", .. })), "{refused:?}");
    }
    let smallest = builder().max_bytes(0).max_vertices(0).create().expect("useless, but valid");
    Segment::open(smallest.path()).expect("sound");
}

#[test]
fn only_changes_are_stored_and_polls_move_checked_at() {
    let (_dir, _publisher, writer, vertex) = one(ValueType::F64, 4);
    let put = |time, value: f64| writer.publish_at(at(time), value).expect("registered");
    assert_eq!(put(10, 1.0), Published::Stored);
    assert_eq!(put(20, 1.0), Published::Unchanged);
    let reading = vertex.latest().expect("published");
    assert_eq!((reading.sample.time, reading.checked_at), (at(10), at(20)));
    assert_eq!(vertex.count(), 1);
    assert_eq!(put(30, f64::NAN), Published::Stored);
    assert_eq!(put(40, f64::NAN), Published::Unchanged, "the same NaN");
    assert_eq!(put(50, 0.0), Published::Stored);
    assert_eq!(put(60, -0.0), Published::Stored, "equal, but other bits");
    let guess = |bound| Sample {
        time: at(70),
        value: Value::F64(-0.0),
        origin: Origin::Predicted { bound },
    };
    let predicted = |bound| writer.publish_sample(&guess(bound)).expect("registered");
    assert_eq!(predicted(0.25), Published::Stored, "another origin is a change");
    assert_eq!(predicted(0.25), Published::Unchanged);
    assert_eq!(predicted(0.5), Published::Stored, "another bound is a change");
}

/// The bound is kept as an `f32`, rounded up, so that it stays a bound.
#[test]
fn a_stored_bound_is_never_smaller() {
    let (_dir, _publisher, writer, vertex) = one(ValueType::F64, 4);
    for (n, bound) in (0..).zip([0.0, 0.1, 1.0, 1e-300, 1e300, f64::MAX, f64::INFINITY, 16777217.0])
    {
        let origin = Origin::Predicted { bound };
        let sample = Sample { time: at(n), value: Value::F64(n as f64), origin };
        writer.publish_sample(&sample).expect("registered");
        match vertex.latest().expect("published").sample.origin {
            Origin::Predicted { bound: kept } => {
                assert!(kept >= bound && kept as f32 as f64 == kept, "{bound} became {kept}");
            }
            Origin::Measured | Origin::Unknown => panic!("it was predicted"),
        }
    }
}

#[test]
fn samples_keep_their_order_when_the_clock_steps_back() {
    let (_dir, publisher, writer, vertex) = one(ValueType::U64, 16);
    for (time, value) in
        [(100, 1u64), (50, 2), (-7, 3), (101, 4), (i64::MIN, 5), (200, 5), (150, 6)]
    {
        writer.publish_at(at(time), value).expect("registered");
    }
    let kept = vertex.range(at(i64::MIN)..=at(i64::MAX)).expect("registered");
    let kept: Vec<_> = kept.samples.iter().map(|s| (s.time.as_nanos(), s.value.as_f64())).collect();
    let expected = [(100, 1.0), (100, 2.0), (100, 3.0), (101, 4.0), (101, 5.0), (200, 6.0)];
    assert_eq!(kept, expected.map(|(time, value)| (time, Some(value))));
    let reading = vertex.latest().expect("published");
    assert_eq!(reading.checked_at, at(200), "`checked_at` never goes back");
    assert_eq!(vertex.segment().clock_steps(), 0);
    publisher.count_clock_step();
    assert_eq!(vertex.segment().clock_steps(), 1);
}

/// A clock far before 1970 is not an error.
#[test]
fn the_first_sample_may_have_any_time() {
    let (_dir, publisher, writer, vertex) = one(ValueType::U64, 4);
    writer.publish_at(at(i64::MIN), 1u64).expect("registered");
    assert_eq!(vertex.latest().expect("published").sample.time, at(i64::MIN));
    writer.publish_at(at(i64::MAX), 2u64).expect("registered");
    assert_eq!(vertex.latest().expect("published").sample.time, at(i64::MAX));
    writer.publish_at(at(0), 3u64).expect("registered");
    assert_eq!(vertex.latest().expect("published").sample.time, at(i64::MAX));
    drop(publisher);
}

const THREADS: u64 = 8;
const EACH: u64 = 20_000;

/// Every sample of each thread is delivered once, in the order of the thread, and times never go back.
#[test]
fn many_threads_publish_into_one_vertex() {
    let (_dir, _publisher, writer, vertex) = one(ValueType::U64, 1 << 12);
    let mut follower = vertex.subscribe();
    let start = Barrier::new(THREADS as usize + 1);
    let (mut delivered, mut lost, mut last) = (0u64, 0u64, at(i64::MIN));
    let mut of_thread: HashMap<u64, u64> = HashMap::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (writer, start) = (writer.clone(), &start);
            scope.spawn(move || {
                start.wait();
                for n in 0..EACH {
                    let done = writer.publish(thread << 32 | n).expect("registered");
                    assert_eq!(done, Published::Stored, "no two samples are the same");
                }
            });
        }
        start.wait();
        eventually("all samples are delivered or lost", || {
            while let Some(delivery) = follower.try_next().expect("registered") {
                match delivery {
                    Delivery::Lost(some) => lost += some,
                    Delivery::Sample(sample) => {
                        delivered += 1;
                        assert!(sample.time >= last, "time went back");
                        last = sample.time;
                        let Value::U64(value) = sample.value else { panic!("wrong type") };
                        let before = of_thread.insert(value >> 32, value & 0xffff_ffff);
                        assert!(before.is_none_or(|b| b < value & 0xffff_ffff), "order");
                    }
                }
            }
            (delivered + lost == THREADS * EACH).then_some(())
        });
    });
    assert_eq!(vertex.count(), THREADS * EACH);
    assert_eq!(follower.try_next().expect("registered"), None);
    // The ring has the last sample of at least one thread, and no hole.
    let rest = vertex.range(at(i64::MIN)..=at(i64::MAX)).expect("registered");
    assert_eq!(rest.samples.len(), 1 << 12);
    println!("{delivered} delivered, {lost} lost");
}

/// With a ring that holds all samples, none may be lost.
#[test]
fn nothing_is_lost_in_a_ring_that_is_large_enough() {
    let dir = runtime_dir();
    let publisher =
        Publisher::builder("large").dir(dir.path()).max_bytes(16 << 20).create().expect("room");
    let spec = spec("test/all", ValueType::U64).slots(1 << 15);
    let writer = publisher.register(spec).expect("room");
    let vertex =
        Segment::open(publisher.path()).expect("sound").find(writer.topic()).expect("there");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let writer = &writer;
            scope.spawn(move || {
                for n in 0..(1 << 13) {
                    let value = Scalar::U64(thread << 32 | n);
                    writer.publish_at(at(n as i64), value).expect("registered");
                }
            });
        }
    });
    let all = vertex.range(at(i64::MIN)..=at(i64::MAX)).expect("registered");
    assert!(all.complete);
    let mut values: Vec<u64> = all
        .samples
        .iter()
        .map(|s| if let Value::U64(v) = s.value { v } else { panic!("wrong type") })
        .collect();
    values.sort_unstable();
    let expected: Vec<u64> = (0..4).flat_map(|t| (0..1 << 13).map(move |n| t << 32 | n)).collect();
    assert_eq!(values, expected);
}

/// Clones of writers, readers and segments refer to the same vertex.
#[test]
fn clones_are_the_same() {
    let (_dir, publisher, writer, vertex) = one(ValueType::U64, 8);
    let (writer2, vertex2, segment2) = (writer.clone(), vertex.clone(), vertex.segment().clone());
    let mut follower = vertex.subscribe();
    writer2.publish_at(at(1), 1u64).expect("registered");
    let mut ahead = follower.clone();
    assert!(ahead.try_next().expect("registered").is_some());
    assert!(
        follower.try_next().expect("registered").is_some(),
        "each subscription has its own cursor"
    );
    assert_eq!(vertex2.latest().expect("published"), vertex.latest().expect("published"));
    drop(vertex);
    assert!(segment2.is_alive() && vertex2.latest().is_ok());
    publisher.unregister(&writer2);
    assert!(matches!(writer.publish(2u64), Err(Error::Gone(_))));
}

/// A released name is free at once, also while other publishers start and end.
#[test]
fn publishers_start_and_end_independently() {
    let dir = runtime_dir();
    let path = dir.path().to_owned();
    must_end("threads that compete for names", move || {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let path = &path;
                scope.spawn(move || come_and_go(path, thread));
            }
        });
    });
    let left = fs::read_dir(dir.path()).expect("ours").count();
    assert_eq!(left, 1, "only the lock file of the directory is left");
}

fn come_and_go(dir: &std::path::Path, thread: u64) {
    for n in 0..1500u64 {
        // Two threads share a name: the only allowed error is that the other thread holds it.
        let name = format!("name-{}", thread / 2);
        let publisher = match Publisher::builder(&name).dir(dir).max_vertices(4).create() {
            Ok(publisher) => publisher,
            Err(Error::Held { .. }) => continue,
            Err(e) => panic!("{e:?}"),
        };
        let writer = publisher.register(spec("test/a", ValueType::U64)).expect("room");
        writer.publish(n).expect("registered");
        let segment = Segment::open(publisher.path()).expect("it is ours and alive");
        let vertex = segment.find(writer.topic()).expect("registered");
        assert_eq!(vertex.latest().expect("published").as_f64(), Some(n as f64));
        let timeout = Duration::from_nanos(1);
        vertex.subscribe().next_timeout(timeout).expect("registered");
        // A publisher that closed just before may only have removed its own file.
        assert!(publisher.path().exists(), "a living publisher's file was removed");
    }
}

/// A reader that reports a value as still valid must not do so for a sample that is no longer the latest.
#[test]
fn checked_at_of_a_subscription_is_for_its_last_sample() {
    let (_dir, publisher, writer, vertex) = one(ValueType::U64, 4);
    let mut subscription = vertex.subscribe();
    assert!(!subscription.has_next());
    writer.publish_at(at(10), 1u64).expect("registered");
    assert!(subscription.has_next());
    assert_eq!(subscription.checked_at(), None, "a sample is not taken yet");
    assert!(matches!(subscription.try_next(), Ok(Some(Delivery::Sample(_)))));
    writer.check_at(at(20)).expect("registered");
    assert!(!subscription.has_next(), "a poll without a change is not a sample");
    assert_eq!(subscription.checked_at(), Some(at(20)));
    publisher.unregister(&writer);
    assert_eq!(subscription.checked_at(), None);
}

/// A program that follows many vertices and waits for news of any of them read all of them again and again.
#[test]
fn a_vertex_that_is_gone_has_no_news_for_ever() {
    let (_dir, publisher, writer, vertex) = one(ValueType::U64, 4);
    let mut subscription = vertex.subscribe_with_latest();
    writer.publish_at(at(1), 1u64).expect("registered");
    assert!(subscription.has_next() && !vertex.is_gone());
    publisher.unregister(&writer);
    assert!(vertex.is_gone());
    assert!(!subscription.has_next(), "an event that never comes");
    assert!(matches!(subscription.try_next(), Err(Error::Gone(_))));
    assert!(!subscription.has_next());
    let host = Host::open_dirs(vec![publisher.path().parent().expect("a folder").to_owned()]);
    let wait = Duration::from_millis(20);
    assert!(!host.expect("ours").wait(wait, || subscription.has_next()), "a wait that rests");
}

/// A publisher may skip unread vertices, so it must know which are read.
#[test]
fn readers_leave_marks_that_the_publisher_takes() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "marks");
    let read = publisher.register(spec("n01/a/read", ValueType::U64)).expect("room");
    let followed = publisher.register(spec("n01/a/followed", ValueType::U64)).expect("room");
    let unread = publisher.register(spec("n01/a/unread", ValueType::U64)).expect("room");
    for writer in [&read, &followed, &unread] {
        writer.publish(1u64).expect("registered");
        assert_eq!(publisher.take_interest(writer), Interest::default());
    }
    assert!(!publisher.has_interest());
    let segment = Segment::open(publisher.path()).expect("it lives");
    let vertex = |writer: &VertexWriter| segment.find(writer.topic()).expect("registered");
    vertex(&read).latest().expect("a value");
    let subscription = vertex(&followed).subscribe();
    assert!(!subscription.has_next());
    vertex(&unread);
    assert!(publisher.has_interest());
    let interest = |read, followed| Interest { read, followed };
    assert_eq!(publisher.take_interest(&read), interest(true, false));
    assert_eq!(publisher.take_interest(&followed), interest(true, true));
    assert_eq!(publisher.take_interest(&unread), interest(false, false), "found, not read");
    assert_eq!(publisher.take_interest(&read), interest(false, false), "taken");
    let _ = vertex(&read).range(at(0)..=skopos_shm::now());
    assert_eq!(publisher.take_interest(&read), interest(true, false), "a range is read");
    // The mark of a follower is stronger than that of a reader, and is not lost by it.
    vertex(&read).latest().expect("a value");
    vertex(&read).follow();
    assert_eq!(publisher.take_interest(&read), interest(true, true), "read and then followed");
}

#[test]
fn a_poll_without_a_change_makes_the_value_fresh() {
    let (_dir, publisher, writer, vertex) = one(ValueType::U64, 4);
    writer.publish_at(at(10), 5u64).expect("registered");
    for (look, checked_at) in [(30, 30), (20, 30), (31, 31)] {
        writer.check_at(at(look)).expect("registered");
        let reading = vertex.latest().expect("published");
        assert_eq!((reading.checked_at, reading.sample.time), (at(checked_at), at(10)), "{look}");
    }
    assert_eq!(vertex.count(), 1, "nothing was stored");
    publisher.unregister(&writer);
    assert!(matches!(writer.check_at(at(40)), Err(Error::Gone(_))));
}
