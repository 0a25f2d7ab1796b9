//! Groups: the facts of one tick carry one time and are read together.

use skopos_model::{Value, ValueType};
use skopos_shm::{Error, Host, Published, Publisher, Segment, Vertex, snapshot};

use crate::support::{at, must_end, publisher, runtime_dir, spec, structured, topic};

fn find(publisher: &Publisher, topics: &[&str]) -> Vec<Vertex> {
    let segment = Segment::open(publisher.path()).expect("sound");
    topics.iter().map(|t| segment.find(&topic(t)).expect("registered")).collect()
}

#[test]
fn a_snapshot_is_of_the_last_complete_tick() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "ticks");
    let mut group = publisher.group("pair").expect("room");
    let a = group.register(spec("test/a", ValueType::U64)).expect("room");
    let b = group.register(spec("test/b", ValueType::Structured)).expect("room");
    let vertices = find(&publisher, &["test/a", "test/b"]);
    assert_eq!(vertices[0].info().group, "pair");
    assert!(matches!(snapshot(&vertices), Err(Error::Empty(_))));

    let mut tick = group.tick(at(100));
    tick.publish(&a, 1u64).expect("of this group");
    assert!(matches!(snapshot(&vertices), Err(Error::Empty(_))), "the tick is not complete yet");
    tick.publish_structured(&b, &structured("[1]")).expect("of this group");
    tick.commit();
    let taken = snapshot(&vertices).expect("a complete tick");
    assert_eq!(taken.time, at(100));
    let times: Vec<_> = taken.samples.iter().flatten().map(|s| s.time).collect();
    assert_eq!(times, [at(100); 2]);

    // A tick in progress is ignored, and a tick that sets only some members keeps the values of the others.
    let mut tick = group.tick(at(200));
    tick.publish(&a, 2u64).expect("of this group");
    assert_eq!(vertices[0].latest().expect("published").as_f64(), Some(2.0));
    assert_eq!(snapshot(&vertices).expect("the previous tick"), taken);
    tick.commit();
    let taken = snapshot(&vertices).expect("a complete tick");
    assert_eq!(taken.time, at(200));
    assert_eq!(taken.samples[0].as_ref().map(|s| s.value.clone()), Some(Value::U64(2)));
    assert_eq!(taken.samples[1].as_ref().map(|s| s.time), Some(at(100)));
}

#[test]
fn ticks_never_share_a_time_nor_go_back() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "ticks");
    let mut group = publisher.group("g").expect("room");
    let a = group.register(spec("test/a", ValueType::U64)).expect("room");
    let times: Vec<i64> = [50, 50, 10, i64::MIN, 60]
        .into_iter()
        .enumerate()
        .map(|(n, time)| {
            let mut tick = group.tick(at(time));
            let done = tick.publish(&a, n as u64).expect("of this group");
            assert_eq!(done, Published::Stored);
            tick.time().as_nanos()
        })
        .collect();
    assert_eq!(times, [50, 51, 52, 53, 60]);
    let vertex = &find(&publisher, &["test/a"])[0];
    let kept = vertex.range(at(0)..=at(99)).expect("registered").samples;
    assert_eq!(kept.iter().map(|s| s.time.as_nanos()).collect::<Vec<_>>(), times);
}

#[test]
fn vertices_of_different_groups_are_refused() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "groups");
    let mut first = publisher.group("first").expect("room");
    let second = publisher.group("second").expect("room");
    let a = first.register(spec("test/a", ValueType::U64)).expect("room");
    let b = second.register(spec("test/b", ValueType::U64)).expect("room");
    let alone = publisher.register(spec("test/alone", ValueType::U64)).expect("room");
    let mut tick = first.tick(at(1));
    assert!(matches!(tick.publish(&b, 1u64), Err(Error::SnapshotGroup(_))));
    assert!(matches!(tick.publish(&alone, 1u64), Err(Error::SnapshotGroup(_))));
    tick.publish(&a, 1u64).expect("its own");
    tick.commit();
    assert!(matches!(a.publish(1u64), Err(Error::NeedsTick(_))), "outside of a tick");
    for together in [["test/a", "test/b"], ["test/a", "test/alone"], ["test/alone", "test/alone"]] {
        let taken = snapshot(&find(&publisher, &together));
        assert!(matches!(taken, Err(Error::SnapshotGroup(_))), "{together:?}");
    }
    assert!(snapshot(&[]).expect("of nothing").samples.is_empty());
    publisher.unregister(&a);
}

#[test]
fn a_member_that_is_gone_is_an_error() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "gone");
    let mut group = publisher.group("g").expect("room");
    let a = group.register(spec("test/a", ValueType::U64)).expect("room");
    let mut tick = group.tick(at(1));
    tick.publish(&a, 1u64).expect("its own");
    tick.commit();
    let vertices = find(&publisher, &["test/a"]);
    publisher.unregister(&a);
    assert!(matches!(snapshot(&vertices), Err(Error::Gone(_))));
    let mut tick = group.tick(at(2));
    assert!(matches!(tick.publish(&a, 2u64), Err(Error::Gone(_))));
}

/// Two segments had the same path, one after the other; their ticks are unrelated.
#[test]
fn vertices_of_a_dead_segment_and_its_successor_are_refused() {
    let dir = runtime_dir();
    let vertices = |value: u64| {
        let publisher = publisher(dir.path(), "phoenix");
        let mut group = publisher.group("g").expect("room");
        let a = group.register(spec("test/a", ValueType::U64)).expect("room");
        let mut tick = group.tick(at(value as i64));
        tick.publish(&a, value).expect("its own");
        tick.commit();
        let vertex = find(&publisher, &["test/a"]).remove(0);
        (publisher, vertex)
    };
    let (old_publisher, old) = vertices(1);
    // The view of a reader whose publisher was killed: the file goes, the mapping stays.
    std::fs::remove_file(old_publisher.path()).expect("our own file");
    let (_new_publisher, new) = vertices(2);
    let host = Host::open_dirs(vec![dir.path().to_owned()]).expect("ours");
    let same = host.find(&topic("test/a")).expect("the new one");
    assert!(snapshot(&[new.clone(), same]).is_ok(), "two mappings of one segment");
    assert!(matches!(snapshot(&[old, new.clone()]), Err(Error::SnapshotGroup(_))));
    drop(old_publisher);
    let path = new.segment().path();
    assert!(path.exists(), "the old publisher must not remove the new file");
}

/// With ticks at full speed, each snapshot is of one tick, and ticks never go back.
#[test]
fn snapshots_are_consistent_while_ticks_go_on() {
    const TICKS: u64 = 30_000;
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "busy");
    let mut group = publisher.group("g").expect("room");
    let names = ["test/a", "test/b", "test/c"];
    let writers = names.map(|n| group.register(spec(n, ValueType::U64).slots(16)).expect("room"));
    let vertices = find(&publisher, &names);
    let taken = must_end("snapshots of a busy group", move || {
        let ticking = std::thread::spawn(move || {
            for n in 1..=TICKS {
                let mut tick = group.tick(at(n as i64));
                for writer in &writers {
                    tick.publish(writer, n).expect("its own");
                }
                tick.commit();
            }
        });
        let (mut last, mut taken) = (0, 0);
        while last < TICKS {
            let found = match snapshot(&vertices) {
                Ok(found) => found,
                Err(Error::Empty(_) | Error::Busy(_)) => continue,
                Err(e) => panic!("{e}"),
            };
            let tick = found.time.as_nanos() as u64;
            assert!(tick >= last, "ticks go back");
            for sample in found.samples.iter().flatten() {
                assert_eq!(sample.value, Value::U64(tick));
            }
            (last, taken) = (tick, taken + 1);
        }
        ticking.join().expect("the writer does not fail");
        taken
    });
    assert!(taken > 1, "only {taken} snapshots");
    drop(publisher);
}

#[test]
fn a_tick_that_an_error_ends_is_passed_over() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "ticks");
    let mut group = publisher.group("pair").expect("room");
    let a = group.register(spec("test/a", ValueType::U64)).expect("room");
    let b = group.register(spec("test/b", ValueType::U64)).expect("room");
    let vertices = find(&publisher, &["test/a", "test/b"]);
    let mut publish = |time: i64, value: u64, fails: bool| -> Result<(), Error> {
        let mut tick = group.tick(at(time));
        tick.publish(&a, value)?;
        if fails {
            tick.publish(&b, 0.5)?;
        }
        tick.publish(&b, value)?;
        tick.commit();
        Ok(())
    };
    publish(100, 1, false).expect("a whole tick");
    assert!(matches!(publish(200, 2, true), Err(Error::WrongType { .. })));
    let taken = snapshot(&vertices).expect("the tick before");
    assert_eq!(taken.time, at(100));
    let values = |taken: &skopos_shm::Snapshot| -> Vec<_> {
        taken.samples.iter().flatten().map(|sample| sample.value.clone()).collect()
    };
    assert_eq!(values(&taken), [Value::U64(1), Value::U64(1)]);
    assert_eq!(vertices[0].latest().expect("published").as_f64(), Some(2.0), "one by one");
    // The next tick is after it, also if the clock went back meanwhile.
    publish(150, 3, false).expect("a whole tick");
    let taken = snapshot(&vertices).expect("the last tick");
    assert_eq!((taken.time, values(&taken)), (at(201), vec![Value::U64(3), Value::U64(3)]));
    let check = a.check_at(at(999));
    assert!(matches!(check, Err(Error::NeedsTick(_))), "a time of its own would part the tick");
    let tick = group.tick(at(300));
    tick.check(&a).expect("its own");
    tick.commit();
    assert_eq!(vertices[0].latest().expect("published").checked_at, at(300));
}
