//! Tests of the protocols on the heap with real threads: fast under `cargo test`, and in Miri, which
//! looks for undefined behaviour and reorders loads and stores like weak machines (`make miri`).
//! Atomics of the tests themselves are relaxed, so that only the protocols order memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use skopos_model::{Kind, Origin, Timestamp, Unit, ValueType};

use crate::entry::{self, Registered};
use crate::heap::{Heap, OWNER, at, free_entry};
use crate::ring::{Meta, Payload, Place, Published, SlotState};
use crate::sys::Futex;
use crate::wait::{Bell, settle};

/// Number of rounds. Miri is hundreds of times slower.
const ROUNDS: u64 = if cfg!(miri) { 60 } else { 100_000 };
/// Number of slots: a small ring is lapped often.
const SLOTS: u64 = 4;

impl Heap {
    /// Publishes a sample whose time, bits and bound agree, so that a torn sample is recognised.
    fn publish(&self, owner: u64, value: u64) -> Option<Published> {
        let origin = Origin::Predicted { bound: (value % 4096) as f64 };
        let time = at(value as i64 * 10);
        self.vertex().publish(owner, time, Payload::Bits(value), origin)
    }
}

fn assert_whole(time: i64, bits: u64, meta: Meta) {
    assert_eq!(time, bits as i64 * 10, "torn");
    assert_eq!(meta.origin(false), Origin::Predicted { bound: (bits % 4096) as f64 }, "torn");
}

#[test]
fn readers_of_a_busy_ring_get_whole_samples_in_order() {
    let heap = Heap::new(SLOTS as usize, 0);
    let readers: Vec<_> = (0..2)
        .map(|which| {
            let heap = Arc::clone(&heap);
            thread::spawn(move || read_on(&heap, which == 0))
        })
        .collect();
    for value in 1..=ROUNDS {
        assert_eq!(heap.publish(OWNER, value), Some(Published::Stored));
    }
    for reader in readers {
        reader.join().unwrap();
    }
    assert!(matches!(heap.vertex().latest(OWNER), SlotState::Whole((s, _)) if s.bits == ROUNDS));
}

/// Reads the latest sample until it is the last one, and with `follow` every sample; sample `t` has the
/// value `t + 1`.
fn read_on(heap: &Heap, follow: bool) {
    let (mut newest, mut next, mut seen, mut lost) = (0, 0, 0, 0);
    while newest < ROUNDS || follow && next < ROUNDS {
        if let SlotState::Whole((sample, checked)) = heap.vertex().latest(OWNER) {
            assert_whole(sample.time, sample.bits, sample.meta);
            assert_eq!(sample.bits, sample.ticket + 1);
            assert!(sample.bits >= newest && checked.time >= sample.time);
            // In the tests both clocks show the same. Between the first sample and its times the second one is not known.
            let is_unknown = checked.boottime == 0 && sample.ticket == 0;
            assert!(is_unknown || checked.boottime >= sample.time, "polled before it was measured");
            newest = sample.bits;
            let held = heap.vertex().as_of(OWNER, sample.time);
            assert!(
                matches!(held, SlotState::Lapped | SlotState::Busy)
                    || held == SlotState::Whole(sample),
                "{held:?}"
            );
        }
        // The writer is about to overwrite the oldest sample, so a torn sample is most likely there.
        if let Some(oldest) = heap.vertex().count().checked_sub(SLOTS)
            && let SlotState::Whole(sample) = heap.vertex().read(OWNER, oldest)
        {
            assert_whole(sample.time, sample.bits, sample.meta);
            assert_eq!(sample.bits, oldest + 1);
        }
        while follow && next < heap.vertex().count() {
            match heap.vertex().read(OWNER, next) {
                SlotState::Whole(sample) => {
                    assert_whole(sample.time, sample.bits, sample.meta);
                    assert_eq!(sample.bits, next + 1);
                    seen += 1;
                }
                SlotState::Lapped => lost += 1,
                other => panic!("{other:?}"),
            }
            next += 1;
        }
        thread::yield_now();
    }
    assert!(!follow || seen + lost == ROUNDS, "{seen} seen and {lost} lost");
}

#[test]
fn writers_take_turns_and_lose_nothing() {
    const WRITERS: u64 = 3;
    let heap = Heap::new(if cfg!(miri) { 256 } else { 1 << 19 }, 0);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let heap = Arc::clone(&heap);
            thread::spawn(move || {
                for n in 0..ROUNDS {
                    let time = at(n as i64);
                    let payload = Payload::Bits(writer << 32 | n);
                    heap.vertex().publish(OWNER, time, payload, Origin::Measured).unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let vertex = heap.vertex();
    assert_eq!(vertex.count(), WRITERS * ROUNDS);
    let (mut next, mut last) = ([0; WRITERS as usize], i64::MIN);
    for ticket in 0..vertex.count() {
        let SlotState::Whole(sample) = vertex.read(OWNER, ticket) else { panic!("a hole") };
        assert!(sample.time >= last, "time went back");
        last = sample.time;
        let (writer, n) = ((sample.bits >> 32) as usize, sample.bits & 0xffff_ffff);
        assert_eq!(n, next[writer], "samples of one writer are out of order");
        next[writer] += 1;
    }
}

#[test]
fn structured_bytes_are_whole_or_refused() {
    let heap = Heap::new(4, 8);
    let reader = {
        let heap = Arc::clone(&heap);
        thread::spawn(move || {
            let (mut bytes, mut newest) = (Vec::new(), 0);
            while newest < ROUNDS as i64 {
                if let SlotState::Whole((sample, _)) = heap.vertex().latest(OWNER)
                    && heap.vertex().copy_bytes(&sample, &mut bytes)
                {
                    let length = 1 + sample.time as usize % 30;
                    assert_eq!(bytes, vec![sample.time as u8; length], "torn");
                    assert!(sample.time >= newest, "went back");
                    newest = sample.time;
                }
                thread::yield_now();
            }
        })
    };
    for n in 1..=ROUNDS {
        let bytes = vec![n as u8; 1 + n as usize % 30];
        let time = at(n as i64);
        heap.vertex().publish(OWNER, time, Payload::Bytes(&bytes), Origin::Measured).unwrap();
    }
    reader.join().unwrap();
}

/// A vertex changes its owner again and again; a reader of one owner never sees samples of another.
#[test]
fn a_reader_never_sees_the_next_owners_samples() {
    let heap = Heap::new(2, 0);
    let owners = ROUNDS / 10;
    heap.vertex().abandon();
    let current = Arc::new(AtomicU64::new(0));
    let reader = {
        let (heap, current) = (Arc::clone(&heap), Arc::clone(&current));
        thread::spawn(move || {
            while current.load(Ordering::Relaxed) < owners {
                let owner = current.load(Ordering::Relaxed).max(1);
                if let SlotState::Whole((sample, _)) = heap.vertex().latest(owner) {
                    assert_whole(sample.time, sample.bits, sample.meta);
                    assert_eq!(sample.bits >> 8, owner, "a sample of another owner");
                }
                thread::yield_now();
            }
        })
    };
    for owner in 1..=owners {
        heap.vertex().adopt(owner);
        current.store(owner, Ordering::Relaxed);
        for n in 0..5 {
            assert!(heap.publish(owner, owner << 8 | n).is_some());
        }
        assert_eq!(heap.publish(owner - 1, 0), None, "a writer of an earlier owner");
        heap.vertex().abandon();
    }
    reader.join().unwrap();
}

#[test]
fn a_directory_entry_is_read_whole() {
    let entry = Arc::new(free_entry());
    let registered = |which: u32| Registered {
        version: 0,
        place: Place { offset: 64 * u64::from(which), slots: 1 << which, byte_ring_bytes: 0 },
        value_type: ValueType::F64,
        kind: Kind::Gauge,
        unit: Unit::new(["bytes", "seconds"][which as usize % 2]).unwrap(),
        topic: "long/enough/to/span/words".repeat(which as usize).parse().unwrap(),
        group: which,
        registered_at: Timestamp::from_nanos(which.into()),
    };
    let all = [registered(1), registered(2), registered(3)];
    let writer = {
        let (entry, all) = (Arc::clone(&entry), all.clone());
        thread::spawn(move || {
            for round in 0..ROUNDS as usize {
                if round % 5 == 0 {
                    entry::write(&entry, None);
                }
                let version = entry::write(&entry, Some(&all[round % 3]));
                assert!(version.is_multiple_of(2));
            }
        })
    };
    while !writer.is_finished() {
        if let Some(found) = entry::read_once(&entry).flatten() {
            let expected = &all[found.group as usize - 1];
            assert_eq!(found, Registered { version: found.version, ..expected.clone() });
        }
        thread::yield_now();
    }
    writer.join().unwrap();
}

/// Uses the real futex: a lost wake-up costs the whole timeout, and fails the test.
#[test]
fn waiters_are_woken() {
    const PATIENCE: Duration = Duration::from_secs(120);
    let rounds = ROUNDS.min(2_000);
    let words = Arc::new((AtomicU32::new(0), AtomicU32::new(0), AtomicU64::new(0)));
    let waiter = {
        let words = Arc::clone(&words);
        thread::spawn(move || {
            let bell = Bell { flag: &words.0, epoch: &words.1 };
            for wanted in 1..=rounds {
                let started = std::time::Instant::now();
                let ready = || words.2.load(Ordering::Relaxed) >= wanted;
                while !bell.wait(&Futex { timeout: PATIENCE }, settle, ready) {
                    assert!(started.elapsed() < PATIENCE, "never woken");
                }
            }
        })
    };
    let bell = Bell { flag: &words.0, epoch: &words.1 };
    for value in 1..=rounds {
        words.2.store(value, Ordering::Relaxed);
        settle();
        bell.ring(&Futex { timeout: PATIENCE });
        if value % 16 == 0 {
            thread::yield_now();
        }
    }
    waiter.join().unwrap();
}

/// With an impossible count, reading ends at once and arithmetic does not overflow.
#[test]
fn a_hostile_head_ends_every_walk() {
    for head in [u64::MAX, u64::MAX - 1, u64::MAX / 2, 1 << 62, 1 << 40, 5] {
        let heap = Heap::new(4, 0);
        heap.head.head.store(head, Ordering::Relaxed);
        let vertex = heap.vertex();
        assert_eq!(vertex.latest(OWNER), SlotState::Damaged);
        assert_eq!(vertex.as_of(OWNER, 0), SlotState::Damaged);
        assert_eq!(vertex.reach(vertex.count()).count(), 4);
        assert_eq!(vertex.read(OWNER, vertex.count()), SlotState::Absent);
    }
}

/// A writer that died at any of its steps leaves the previous sample as the latest.
#[test]
fn a_half_written_slot_is_not_read() {
    let heap = Heap::new(2, 0);
    heap.publish(OWNER, 1);
    heap.publish(OWNER, 2);
    // The steps of `store_slot`, up to each point: sample 2 uses the slot of sample 0.
    let slot = &heap.vertex().slots[0];
    let steps: [&dyn Fn(); 5] = [
        &|| slot.mark.store(5, Ordering::Relaxed),
        &|| slot.time.store(30, Ordering::Relaxed),
        &|| slot.bits.store(3, Ordering::Relaxed),
        &|| slot.meta.store(Meta::scalar(Origin::Predicted { bound: 3.0 }).0, Ordering::Relaxed),
        &|| slot.mark.store(6, Ordering::Relaxed),
    ];
    for step in steps {
        step();
        let SlotState::Whole((latest, _)) = heap.vertex().latest(OWNER) else { panic!("none") };
        assert_eq!((latest.ticket, latest.bits), (1, 2));
        assert_eq!(heap.vertex().read(OWNER, 0), SlotState::Lapped);
        assert!(matches!(heap.vertex().as_of(OWNER, 10), SlotState::Lapped));
    }
    heap.head.head.store(3, Ordering::Relaxed);
    assert!(matches!(heap.vertex().latest(OWNER), SlotState::Whole((s, _)) if s.bits == 3));
}
