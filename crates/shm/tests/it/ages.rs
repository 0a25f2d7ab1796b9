//! Ages are times on a clock that never steps.

use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use skopos_model::{Sample, Value, ValueType};
use skopos_shm::{Error, Reader, Segment};

use crate::support::{publisher, runtime_dir, spec, topic};

/// Offset of `checked_at` in the head of a vertex.
const CHECKED_AT: u64 = 16;
/// Offset of `checked_boottime`.
const CHECKED_BOOTTIME: u64 = 48;

#[test]
fn a_dead_source_does_not_look_fresh_after_the_clock_stepped_back() {
    const HOUR: i64 = 3_600_000_000_000;
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "stepped");
    let writer = publisher.register(spec("test/a", ValueType::U64)).expect("room");
    let long_ago = skopos_shm::now().saturating_sub(Duration::from_secs(7200));
    writer.publish_at(long_ago, 1u64).expect("registered");
    let segment = Segment::open(publisher.path()).expect("sound");
    let vertex = segment.find(&topic("test/a")).expect("registered");
    let file = std::fs::OpenOptions::new().write(true).open(publisher.path()).expect("ours");
    let bytes = std::fs::read(publisher.path()).expect("readable");
    let heap = u64::from_le_bytes(bytes[56..64].try_into().expect("eight bytes"));
    let write = |at: u64, value: i64| {
        file.write_all_at(&value.to_le_bytes(), heap + at).expect("written");
    };
    // The last poll was ten seconds ago, by a clock that was an hour ahead then.
    write(CHECKED_AT, skopos_shm::now().as_nanos() + HOUR);
    write(CHECKED_BOOTTIME, skopos_shm::boottime().cast_signed() - 10_000_000_000);
    let age = vertex.latest().expect("published").age();
    assert!(age >= Duration::from_secs(10), "{age:?}");
    let reader: Reader<u64> = vertex.clone().try_into().expect("of this type");
    let stale = reader.fresh(Duration::from_secs(5));
    assert!(matches!(stale, Err(Error::Stale { .. })), "{stale:?}");
    assert_eq!(reader.fresh(Duration::from_secs(1000)).expect("young enough"), 1);
    // A publisher of an older version does not write it, and then the clock must do.
    write(CHECKED_AT, skopos_shm::now().as_nanos() - HOUR);
    write(CHECKED_BOOTTIME, 0);
    let age = vertex.latest().expect("published").age();
    assert!(age >= Duration::from_secs(3600), "{age:?}");
}

/// After a step back of the clock, samples of a vertex go on with times after the last one; the age is that of the source.
#[test]
fn a_sample_with_a_later_time_is_as_old_as_its_source() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "ordered");
    let writer = publisher.register(spec("test/a", ValueType::U64)).expect("room");
    let segment = Segment::open(publisher.path()).expect("sound");
    let vertex = segment.find(&topic("test/a")).expect("registered");
    let (now, hour) = (skopos_shm::now(), Duration::from_secs(3600));
    let sample = Sample::measured(now.saturating_add(hour), Value::U64(1));
    writer.publish_sample_of(&sample, now.saturating_sub(hour)).expect("registered");
    let reading = vertex.latest().expect("published");
    assert_eq!(reading.checked_at, now.saturating_add(hour));
    assert!(reading.age() >= hour, "{:?}", reading.age());
}

#[test]
fn a_publish_and_a_poll_without_a_change_make_a_vertex_young() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "young");
    let mut writer = publisher.writer::<u64>("test/a").expect("room");
    let segment = Segment::open(publisher.path()).expect("sound");
    let vertex = segment.find(&topic("test/a")).expect("registered");
    let hour = Duration::from_secs(3600);
    let age = || vertex.latest().expect("published").age();
    let now = skopos_shm::now();
    writer.publish_at(now.saturating_sub(2 * hour), 1).expect("registered");
    assert!(age() >= 2 * hour, "the time of the poll is the caller's");
    writer.check_at(now.saturating_sub(hour)).expect("registered");
    assert!(age() >= hour && age() < 2 * hour);
    writer.publish(1).expect("registered");
    assert!(age() < hour);
    writer.publish(2).expect("registered");
    assert!(age() < hour);
    // A time from before the machine started is as old as it says.
    let mut old = publisher.writer::<u64>("test/old").expect("room");
    old.publish_at(now.saturating_sub(100_000 * hour), 1).expect("registered");
    let vertex = segment.find(&topic("test/old")).expect("registered");
    assert!(vertex.latest().expect("published").age() >= 100_000 * hour);
}
