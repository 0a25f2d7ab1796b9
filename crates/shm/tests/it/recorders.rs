//! Segments of recorders: processes that are killed at random moments, forks, damaged files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use skopos_model::SplitMix64;
use skopos_shm::Error;
use skopos_shm::records::layout::{Counter, MAX_DEFINITION_BYTES};
use skopos_shm::records::{
    RecordReader, RecordSegment, Stored, record_segments, remove_record_segment,
};

use crate::forks::{fork, wait_for};
use crate::support::{
    Kill, child_dir, die_with_parent, eventually, runtime_dir, seed, this_binary,
};

/// Number of kills; each costs some ten milliseconds.
const KILLS: u64 = 40;
/// Longest life after the segment exists.
const LONGEST_LIFE_US: usize = 20_000;
/// Threads of the child, each with a ring.
const THREADS: u32 = 3;
/// Slots of a ring: small, so that a drain often loses some.
const RING: u32 = 256;
const NAME: &str = "killed";

/// The words of record `ticket`: each follows from the number, so that a torn record is recognised.
fn words(ticket: u64) -> [u64; 8] {
    std::array::from_fn(|at| ticket.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at as u32 * 7))
}

fn segment(dir: &Path) -> RecordSegment {
    RecordSegment::builder(NAME).dir(dir).node("n1").rings(4, RING).create().expect("made")
}

#[test]
#[ignore = "a child of the tests below"]
fn record_until_killed() {
    let Some(dir) = child_dir() else { return };
    die_with_parent();
    let segment = segment(&dir);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut writer = segment.claim().expect("a ring");
            let segment = &segment;
            scope.spawn(move || {
                let mut ticket = 0;
                loop {
                    let group = [words(ticket), words(ticket + 1), words(ticket + 2)];
                    let count = 1 + ticket % 3;
                    assert_ne!(writer.push(&group[..count as usize]), Stored::Forked);
                    ticket += count;
                    if ticket % 1000 == 0 {
                        let _ = segment.define(3, format!("{thread} {ticket}").as_bytes());
                    }
                }
            });
        }
    });
}

/// A reader that drains all rings and checks that nothing is missing.
struct Drain {
    reader: RecordReader,
    next: [u64; THREADS as usize],
    read: u64,
    lost: u64,
    definitions: u64,
}

impl Drain {
    fn step(&mut self) {
        for ring in 0..self.reader.rings().min(THREADS) {
            let at = self.next[ring as usize];
            let mut bytes = Vec::new();
            let drained = self.reader.drain(ring, at, 100, &mut bytes);
            assert_eq!(drained.first, at + drained.lost);
            assert_eq!(bytes.len() as u64, 64 * (drained.next - drained.first));
            for (ticket, record) in (drained.first..).zip(bytes.as_chunks::<64>().0) {
                assert_eq!(record, words(ticket).map(u64::to_le_bytes).as_flattened(), "torn");
            }
            self.next[ring as usize] = drained.next;
            self.read += drained.next - drained.first;
            self.lost += drained.lost;
        }
        self.definitions = self.reader.definitions(self.definitions, |kind, payload| {
            assert_eq!(kind, 3);
            let text = std::str::from_utf8(payload).expect("whole");
            assert!(text.split_once(' ').is_some_and(|(_, n)| n.parse::<u64>().is_ok()), "{text}");
        });
    }
}

fn only_segment(dir: &Path) -> PathBuf {
    eventually("the segment of the child", || record_segments(dir).ok()?.pop())
}

#[test]
fn killed_recorders_leave_whole_records_and_exact_counts() {
    let mut random = SplitMix64::new(seed("killed_recorders"));
    let (mut read, mut lost) = (0, 0);
    for life in 0..KILLS {
        let dir = runtime_dir();
        let mut child = this_binary("recorders::record_until_killed", dir.path());
        let mut child = Kill(child.spawn().expect("this binary runs"));
        let path = only_segment(dir.path());
        let reader = RecordReader::open(&path).expect("a file of this name is complete");
        assert!(reader.is_held());
        let mut drain = Drain { reader, next: [0; 3], read: 0, lost: 0, definitions: 0 };
        // Every other life is drained while it lasts; the others are flight recorders.
        let until = Duration::from_micros(random.below(LONGEST_LIFE_US) as u64);
        let started = std::time::Instant::now();
        while started.elapsed() < until {
            if life % 2 == 0 {
                drain.step();
            } else {
                std::thread::sleep(until.saturating_sub(started.elapsed()));
            }
        }
        child.0.kill().expect("our own child");
        child.0.wait().expect("our own child");
        assert!(!drain.reader.is_held() && !drain.reader.is_closed());
        loop {
            let before = drain.next;
            drain.step();
            if drain.next == before {
                break;
            }
        }
        assert_eq!(drain.next.iter().sum::<u64>(), drain.read + drain.lost);
        // Read again from the start, the memory of a dead process has the last records of each ring.
        for (ring, head) in (0..).zip(drain.next) {
            let again = drain.reader.drain(ring, 0, u64::MAX, &mut Vec::new());
            // Less those that it was overwriting.
            let (whole, most) = (again.next - again.first, head.min(u64::from(RING)));
            assert!(again.next == head && (most.saturating_sub(3)..=most).contains(&whole));
        }
        (read, lost) = (read + drain.read, lost + drain.lost);
        assert!(remove_record_segment(&drain.reader).expect("our own folder"));
        assert!(record_segments(dir.path()).expect("readable").is_empty());
    }
    println!("{read} records were read, {lost} lost");
    assert!(read > 0);
}

#[test]
fn a_child_writes_nothing_into_the_rings_of_its_parent() {
    let dir = runtime_dir();
    let segment = segment(dir.path());
    let mut writer = segment.claim().expect("a ring");
    assert_eq!(writer.push(&[words(0)]), Stored::Yes);
    let child = fork(|| {
        let is_refused = writer.push(&[words(1)]) == Stored::Forked
            && segment.claim().is_none()
            && matches!(segment.define(3, b"x"), Err(Error::Forked { .. }));
        segment.count(Counter::WithoutRing, 5);
        segment.set_stage(3);
        segment.close(true);
        is_refused
    });
    assert_eq!(wait_for(child), 0);
    let reader = RecordReader::open(segment.path()).expect("still there");
    assert_eq!(reader.drain(writer.ring(), 0, 10, &mut Vec::new()).next, 1);
    assert_eq!((reader.counter(Counter::WithoutRing), reader.stage()), (0, 0));
    assert!(reader.is_held() && !reader.is_closed());
    assert_eq!(reader.definitions(0, |_, _| panic!("of the child")), 0);
}

#[test]
fn a_ring_goes_from_a_thread_that_ended_to_the_next() {
    let dir = runtime_dir();
    let segment = segment(dir.path());
    let writers: Vec<_> = (0..4).map(|_| segment.claim().expect("a ring")).collect();
    assert!(segment.claim().is_none());
    drop(writers);
    for round in 0..3 {
        let mut writer = segment.claim().expect("given back");
        assert!(writer.is_of(&segment));
        assert_eq!(writer.push(&[words(round)]), Stored::Yes);
    }
    let reader = RecordReader::open(segment.path()).expect("sound");
    let total: u64 = (0..4).map(|r| reader.drain(r, 0, 9, &mut Vec::new()).next).sum();
    assert_eq!((reader.rings(), total), (4, 3));
}

#[test]
fn a_quarter_of_a_ring_wakes_the_drain() {
    let dir = runtime_dir();
    let segment = segment(dir.path());
    let mut writer = segment.claim().expect("a ring");
    let wakes: Vec<_> =
        (0..u64::from(RING)).filter(|t| writer.push(&[words(*t)]) == Stored::Quarter).collect();
    assert_eq!(wakes, [63, 127, 191, 255]);
}

#[test]
fn header_clock_and_definitions_are_read_as_they_were_written() {
    let dir = runtime_dir();
    let segment = segment(dir.path());
    let reader = RecordReader::open(segment.path()).expect("sound");
    assert_eq!((reader.name(), reader.node(), reader.pid()), (NAME, "n1", std::process::id()));
    assert_eq!(reader.clock(), None);
    segment.set_clock(5, -7, 0.5, 9);
    assert_eq!(reader.clock(), Some((5, -7, 0.5, 9)));
    segment.define(4, b"").expect("room");
    segment.define(5, b"123456789").expect("room");
    let mut found = Vec::new();
    let end = reader.definitions(0, |kind, payload| found.push((kind, payload.to_vec())));
    assert_eq!(found, [(4, vec![]), (5, b"123456789".to_vec())]);
    assert_eq!(reader.definitions(end, |_, _| panic!("none")), end);
    let long = vec![0; MAX_DEFINITION_BYTES + 1];
    assert!(matches!(segment.define(3, &long), Err(Error::DefinitionsFull { .. })));
    assert_eq!(reader.counter(Counter::DefinitionsRefused), 1);
    let filling = vec![7; MAX_DEFINITION_BYTES];
    while segment.define(3, &filling).is_ok() {}
    assert_eq!(reader.counter(Counter::DefinitionsRefused), 2);
    assert!(matches!(
        RecordSegment::builder(NAME).dir(dir.path()).create(),
        Err(Error::Held { .. })
    ));
    segment.close(true);
    assert!(reader.is_closed() && !segment.path().exists());
    for (rings, records) in [(0, 64), (1, 63), (1, 100), (1025, 64), (1024, 65_536)] {
        let made = RecordSegment::builder("x").dir(dir.path()).rings(rings, records).create();
        assert!(matches!(made, Err(Error::Rings(..))), "{rings} {records}");
    }
    let long = "x".repeat(49);
    assert!(matches!(RecordSegment::builder(&long).dir(dir.path()).create(), Err(Error::Name(_))));
}

/// The name of a service becomes a part of the name of a trace; one with a slash once led out of its folder.
#[test]
fn a_segment_whose_name_cannot_be_that_of_a_file_is_refused() {
    const NAME_AT: usize = 112;
    let dir = runtime_dir();
    let segment = segment(dir.path());
    let whole = std::fs::read(segment.path()).expect("readable");
    let path = dir.path().join("renamed-1.rpc");
    let named = |name: &[u8; 6]| {
        let mut bytes = whole.clone();
        bytes[NAME_AT..NAME_AT + 6].copy_from_slice(name);
        std::fs::write(&path, &bytes).expect("written");
        RecordReader::open(&path)
    };
    assert_eq!(named(b"sorted").expect("a name").name(), "sorted");
    for name in [b"../../", b"a/b/cd", b".lives", b"KILLED"] {
        assert!(matches!(named(name), Err(Error::NotASegment { .. })));
    }
}

/// Any bytes in a segment are an error or are read within their bounds.
#[test]
fn a_damaged_segment_is_refused_or_read_within_its_bounds() {
    let dir = runtime_dir();
    let segment = segment(dir.path());
    let mut writer = segment.claim().expect("a ring");
    (0..300).for_each(|ticket| assert_ne!(writer.push(&[words(ticket)]), Stored::Forked));
    segment.define(3, b"a definition").expect("room");
    segment.set_clock(1, 2, 3.0, 4);
    let whole = std::fs::read(segment.path()).expect("readable");
    let path = dir.path().join("damaged-1.rpc");
    let mut random = SplitMix64::new(seed("damaged_segment"));
    let heads = 4096 + 4 * 128 + 64;
    for round in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..=round % 4 {
            let at = random.below(heads);
            bytes[at] = random.bits() as u8;
        }
        if round % 10 == 0 {
            bytes.truncate(random.below(bytes.len()));
        }
        std::fs::write(&path, &bytes).expect("written");
        let Ok(reader) = RecordReader::open(&path) else { continue };
        for ring in 0..reader.rings() {
            reader.drain(ring, 0, 1000, &mut Vec::new());
            assert!(reader.waiting(ring) <= 65_536);
        }
        reader.definitions(0, |_, _| ());
        let _ = (reader.clock(), reader.is_held(), reader.is_closed());
    }
}
