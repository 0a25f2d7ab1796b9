//! Explores every interleaving of the protocols, on the smallest rings that can fail. Run with
//! `make loom`.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use skopos_model::{Origin, Timestamp};

use crate::clocks::{BothClocks, CLOCKS_HOLD_NS, Clocks};
use crate::entry;
use crate::heap::{Heap, OWNER, at, free_entry};
use crate::marks;
use crate::ring::{Payload, Place, Published, RawVertex, Slot, SlotState, VertexHead};
use crate::sync::{AcquireLoad as _, AtomicI64, AtomicU32, AtomicU64};
use crate::wait::{Bell, Sleep, settle};

impl Heap {
    /// Returns time and bits of the newest sample if it is in slot `index`, as a reader that remembers this slot.
    fn newest_in(&self, index: usize) -> Result<(i64, u64), u64> {
        let found = self.head.newest_in(OWNER, &self.vertex().slots[index], Slot::fields);
        found.map(|(time, bits, _)| (time, bits))
    }

    /// [`publish`](Self::publish) by the only writer, without a lock.
    fn publish_next(&self, value: u64) -> Option<Published> {
        let (vertex, at) = (self.vertex(), at(value as i64 * 10));
        let slot = |ticket: u64| &vertex.slots[ticket as usize % vertex.slots.len()];
        self.head.publish_next(slot, OWNER, at, value)
    }

    /// Publishes a sample whose time is ten times its value, so that a torn sample is recognised.
    fn publish(&self, value: u64) {
        let time = at(value as i64 * 10);
        self.vertex().publish(OWNER, time, Payload::Bits(value), Origin::Measured);
    }
}

fn explore(bound: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(model);
}

#[test]
fn loom_latest_is_never_torn_and_never_goes_back() {
    explore(3, || {
        let heap = Heap::new(2, 0);
        heap.publish(1);
        let writer = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || (2..=4).for_each(|v| heap.publish(v)))
        };
        let mut last = 0;
        for _ in 0..2 {
            // `latest` gives up only after many attempts, which is too slow under loom: make one attempt
            // at a time.
            let ticket = heap.vertex().count() - 1;
            if let SlotState::Whole(sample) = heap.vertex().read(OWNER, ticket) {
                assert_eq!(sample.time, sample.bits as i64 * 10, "torn");
                assert_eq!(sample.bits, ticket + 1, "the sample of another ticket");
                assert!(sample.bits >= last, "went back");
                last = sample.bits;
            }
        }
        writer.join().unwrap();
        assert!(
            matches!(heap.vertex().latest(OWNER), SlotState::Whole((s, c)) if s.bits == 4 && c == at(40))
        );
    });
}

#[test]
fn loom_checked_at_never_runs_ahead_of_the_sample() {
    explore(3, || {
        let heap = Heap::new(2, 0);
        heap.publish(1);
        let writer = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || heap.publish(2))
        };
        if let SlotState::Whole((sample, checked)) = heap.vertex().latest(OWNER) {
            // Each value was checked only at its own time, so a later time proves a stale sample.
            assert_eq!(checked.time, sample.bits as i64 * 10);
            assert!(checked.boottime >= sample.time, "older than its sample");
            assert!(sample.bits == 2 || checked.boottime == 10, "the moment of the next sample");
        }
        writer.join().unwrap();
    });
}

#[test]
fn loom_two_writers_lose_nothing_and_stay_in_order() {
    explore(3, || {
        let heap = Heap::new(4, 0);
        let writers: Vec<_> = [1, 2]
            .into_iter()
            .map(|value| {
                let heap = Arc::clone(&heap);
                thread::spawn(move || heap.publish(value))
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(heap.vertex().count(), 2);
        let samples: Vec<_> = (0..2)
            .map(|t| match heap.vertex().read(OWNER, t) {
                SlotState::Whole(sample) => sample,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(samples[0].time <= samples[1].time);
        assert_eq!(samples[0].bits + samples[1].bits, 3);
    });
}

#[test]
fn loom_structured_bytes_are_whole_or_refused() {
    explore(3, || {
        let heap = Heap::new(2, 2);
        let publish = |heap: &Heap, byte: u8| {
            let payload = [byte; 16];
            let time = at(i64::from(byte));
            heap.vertex().publish(OWNER, time, Payload::Bytes(&payload), Origin::Measured);
        };
        publish(&heap, 1);
        let writer = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || publish(&heap, 2))
        };
        let mut bytes = Vec::new();
        if let SlotState::Whole((sample, _)) = heap.vertex().latest(OWNER)
            && heap.vertex().copy_bytes(&sample, &mut bytes)
        {
            assert_eq!(bytes, [sample.time as u8; 16]);
        }
        writer.join().unwrap();
    });
}

#[test]
fn loom_a_reader_of_an_unregistered_vertex_never_sees_its_successor() {
    explore(3, || {
        let heap = Heap::new(2, 0);
        heap.publish(1);
        let writer = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || {
                heap.vertex().abandon();
                heap.vertex().adopt(OWNER + 1);
                let time = at(99);
                heap.vertex().publish(OWNER + 1, time, Payload::Bits(99), Origin::Measured);
            })
        };
        match heap.vertex().read(OWNER, 0) {
            SlotState::Whole(sample) => assert_eq!((sample.bits, sample.time), (1, 10)),
            SlotState::Gone => {}
            // A reader takes a missing sample that is counted for damage.
            other => panic!("{other:?}"),
        }
        writer.join().unwrap();
        assert_eq!(heap.vertex().read(OWNER, 0), SlotState::Gone);
        assert_eq!(heap.vertex().publish(OWNER, at(0), Payload::Bits(0), Origin::Measured), None);
    });
}

/// A futex as specified by the kernel: comparing and going to sleep are one step.
#[derive(Clone)]
struct LoomFutex(Arc<(Mutex<()>, Condvar)>);

impl Sleep for LoomFutex {
    fn sleep(&self, word: &AtomicU32, seen: u32) {
        let guard = self.0.0.lock().unwrap();
        if word.load(crate::sync::Ordering::Relaxed) == seen {
            drop(self.0.1.wait(guard).unwrap());
        }
    }

    fn wake(&self, _word: &AtomicU32) {
        drop(self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }
}

/// If a wake-up could be lost, a waiter would sleep for ever: loom reports that as a deadlock.
#[test]
fn loom_no_wake_up_is_lost() {
    explore(3, || {
        let words = Arc::new((AtomicU32::new(0), AtomicU32::new(0), AtomicU64::new(0)));
        let futex = LoomFutex(Arc::new((Mutex::new(()), Condvar::new())));
        let waiter = {
            let (words, futex) = (Arc::clone(&words), futex.clone());
            thread::spawn(move || {
                let bell = Bell { flag: &words.0, epoch: &words.1 };
                for wanted in 1..=2 {
                    let ready = || words.2.load(crate::sync::Ordering::Acquire) >= wanted;
                    while !bell.wait(&futex, settle, ready) {}
                }
            })
        };
        let bell = Bell { flag: &words.0, epoch: &words.1 };
        for value in 1..=2 {
            words.2.store(value, crate::sync::Ordering::Release);
            settle();
            bell.ring(&futex);
        }
        waiter.join().unwrap();
    });
}

/// The bell of a vertex and that of its segment are rung after one fence.
#[test]
fn loom_one_fence_serves_two_bells() {
    explore(3, || {
        let zero = || AtomicU32::new(0);
        let words = Arc::new(([zero(), zero()], [zero(), zero()], AtomicU64::new(0)));
        let futex = LoomFutex(Arc::new((Mutex::new(()), Condvar::new())));
        let waiter = {
            let (words, futex) = (Arc::clone(&words), futex.clone());
            thread::spawn(move || {
                let bell = Bell { flag: &words.0[1], epoch: &words.1[1] };
                let ready = || words.2.load(crate::sync::Ordering::Acquire) == 1;
                while !bell.wait(&futex, settle, ready) {}
            })
        };
        words.2.store(1, crate::sync::Ordering::Release);
        settle();
        for (flag, epoch) in words.0.iter().zip(&words.1) {
            Bell { flag, epoch }.ring(&futex);
        }
        waiter.join().unwrap();
    });
}

/// One publish wakes each of several waiters, who share the flag.
#[test]
fn loom_one_publish_wakes_all_waiters() {
    explore(2, || {
        let words = Arc::new((AtomicU32::new(0), AtomicU32::new(0), AtomicU64::new(0)));
        let futex = LoomFutex(Arc::new((Mutex::new(()), Condvar::new())));
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let (words, futex) = (Arc::clone(&words), futex.clone());
                thread::spawn(move || {
                    let bell = Bell { flag: &words.0, epoch: &words.1 };
                    let ready = || words.2.load(crate::sync::Ordering::Acquire) == 1;
                    while !bell.wait(&futex, settle, ready) {}
                })
            })
            .collect();
        words.2.store(1, crate::sync::Ordering::Release);
        settle();
        Bell { flag: &words.0, epoch: &words.1 }.ring(&futex);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

/// A reader that waits for a vertex is woken when it is unregistered, and finds it gone.
#[test]
fn loom_a_waiter_learns_that_its_vertex_is_unregistered() {
    explore(3, || {
        let heap = Heap::new(2, 0);
        heap.publish(1);
        let flag = Arc::new(AtomicU32::new(0));
        let futex = LoomFutex(Arc::new((Mutex::new(()), Condvar::new())));
        let waiter = {
            let (heap, flag, futex) = (Arc::clone(&heap), Arc::clone(&flag), futex.clone());
            thread::spawn(move || {
                let bell = Bell { flag: &flag, epoch: &heap.head.epoch };
                while !bell.wait(&futex, settle, || heap.vertex().is_due(OWNER, 1)) {}
                assert_eq!(heap.vertex().read(OWNER, 1), SlotState::Gone);
            })
        };
        heap.vertex().abandon();
        settle();
        Bell { flag: &flag, epoch: &heap.head.epoch }.ring(&futex);
        waiter.join().unwrap();
    });
}

/// A snapshot has the values of one tick: of the last one that was committed when it was taken.
#[test]
fn loom_a_snapshot_is_of_one_tick() {
    explore(2, || {
        let both = [Heap::new(4, 0), Heap::new(4, 0)];
        let committed = Arc::new(AtomicI64::new(0));
        // The steps of `Tick`: publish into each vertex, and store the time of the tick then.
        let tick = |both: &[Arc<Heap>; 2], committed: &AtomicI64, value: u64| {
            for heap in both {
                heap.publish(value);
            }
            committed.store(value as i64 * 10, crate::sync::Ordering::Release);
        };
        tick(&both, &committed, 1);
        let writer = {
            let (both, committed) = (both.clone(), Arc::clone(&committed));
            thread::spawn(move || tick(&both, &committed, 2))
        };
        // The steps of `snapshot`.
        let time = committed.load_acquire();
        for heap in &both {
            match heap.vertex().as_of(OWNER, time) {
                SlotState::Whole(sample) => assert_eq!(sample.time, time, "of another tick"),
                other => panic!("{other:?}"),
            }
        }
        writer.join().unwrap();
    });
}

/// A sample of a writer without a lock is read whole or not at all.
#[test]
fn loom_the_only_writer_publishes_whole_samples() {
    explore(2, || {
        let heap = Heap::new(2, 0);
        heap.publish(1);
        let writer = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || {
                for value in 2..=3 {
                    assert_eq!(heap.publish_next(value), Some(Published::Stored));
                }
            })
        };
        let mut last = 0;
        for slot in [0, 1] {
            // The time comes first: the sample that is read after it is at least as new.
            let checked = heap.head.checked();
            assert!(checked.boottime >= checked.time, "the moment of an earlier poll");
            if let Ok((time, bits)) = heap.newest_in(slot) {
                assert_eq!(time, bits as i64 * 10, "torn");
                assert_eq!((bits - 1) as usize % 2, slot, "the sample of another slot");
                assert!(bits >= last && time >= checked.time, "went back");
                last = bits;
            }
        }
        writer.join().unwrap();
        assert_eq!(heap.newest_in(0), Ok((30, 3)));
        assert_eq!(heap.publish_next(3), Some(Published::Unchanged));
    });
}

/// A slot keeps its meta word if the next sample has the same: a reader never gets it with the bits of another sample.
#[test]
fn loom_the_meta_word_is_that_of_the_sample() {
    explore(3, || {
        let origin = |value: u64| match value {
            1 => Origin::Measured,
            _ => Origin::Unknown,
        };
        let publish = move |heap: &Heap, value: u64| {
            let at = at(value as i64 * 10);
            heap.vertex().publish_alone(OWNER, at, Payload::Bits(value), origin(value));
        };
        let heap = Heap::new(1, 0);
        publish(&heap, 1);
        let writer = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || (2..=3).for_each(|value| publish(&heap, value)))
        };
        for _ in 0..2 {
            let slot = &heap.vertex().slots[0];
            if let Ok((bits, meta)) = heap.head.newest_in(OWNER, slot, Slot::number) {
                assert_eq!(meta.origin(false), origin(bits), "of another sample");
            }
        }
        writer.join().unwrap();
    });
}

/// The only writer of a vertex takes no lock, and the end of its segment may come at any time.
#[test]
fn loom_the_end_of_a_segment_during_a_publish_without_a_lock() {
    explore(3, || {
        let heap = Heap::new(2, 0);
        heap.publish(1);
        let writer = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || heap.publish_next(2))
        };
        let closer = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || heap.vertex().abandon())
        };
        match heap.vertex().latest_sample(OWNER) {
            SlotState::Whole(sample) => assert_eq!(sample.time, sample.bits as i64 * 10, "torn"),
            SlotState::Gone => {}
            other => panic!("{other:?}"),
        }
        writer.join().unwrap();
        closer.join().unwrap();
        assert_eq!(heap.vertex().latest_sample(OWNER), SlotState::Gone);
    });
}

#[test]
fn loom_a_directory_entry_is_read_whole() {
    explore(2, || {
        let entry = Arc::new(free_entry());
        let registered = |topic: &str, slots: u32| entry::Registered {
            version: 0,
            place: Place { offset: 64 * u64::from(slots), slots, byte_ring_bytes: 0 },
            value_type: skopos_model::ValueType::F64,
            kind: skopos_model::Kind::Gauge,
            unit: skopos_model::Unit::NONE,
            topic: topic.parse().unwrap(),
            group: 0,
            registered_at: Timestamp::default(),
        };
        entry::write(&entry, Some(&registered("a", 1)));
        let writer = {
            let (entry, next) = (Arc::clone(&entry), registered("b", 2));
            thread::spawn(move || {
                entry::write(&entry, None);
                entry::write(&entry, Some(&next));
            })
        };
        if let Some(read) = entry::read_once(&entry).flatten() {
            let expected = if read.topic.as_str() == "a" { 1 } else { 2 };
            assert_eq!(read.place.slots, expected, "half of each");
            assert_eq!(read.place.offset, 64 * u64::from(expected), "half of each");
        }
        writer.join().unwrap();
    });
}

/// A step of the clock in the tests of `Clocks`, ns: many times longer than a difference holds.
const STEP: i64 = 100 * CLOCKS_HOLD_NS as i64;

/// Asks for a moment of a machine that runs for `uptime`; its clock is ahead of that by `offset`.
fn check_moment(clocks: &Clocks, offset: i64, uptime: i64) {
    let now = offset + uptime;
    let read = || BothClocks { now, boottime: uptime };
    let moment = clocks.moment(Timestamp::from_nanos(now), read);
    assert_eq!(moment.boottime, uptime, "of the other offset");
}

/// A thread that reads the difference of the clocks while another thread keeps a new one, after the clock stepped, gets
/// a moment by the clock that never steps.
///
/// The later time is that of the spawned thread: half of a change is the old difference with the new time, which holds for
/// a later time alone, and loom lets a spawned thread run between the steps of this one, not the other way round. With
/// the times swapped the test passed without any fence.
#[test]
fn loom_the_difference_of_the_clocks_is_never_half_of_a_step() {
    explore(3, || {
        let clocks = Arc::new(Clocks::default());
        check_moment(&clocks, STEP, 5);
        let other = {
            let clocks = Arc::clone(&clocks);
            thread::spawn(move || check_moment(&clocks, 2 * STEP, 7))
        };
        check_moment(&clocks, 2 * STEP, 6);
        other.join().unwrap();
        check_moment(&clocks, 2 * STEP, 8);
    });
}

/// Two threads that keep the differences of two steps keep one of both whole.
#[test]
fn loom_two_steps_of_the_clock_do_not_mix() {
    explore(3, || {
        let clocks = Arc::new(Clocks::default());
        let other = {
            let clocks = Arc::clone(&clocks);
            thread::spawn(move || check_moment(&clocks, STEP, 6))
        };
        check_moment(&clocks, 2 * STEP, 7);
        other.join().unwrap();
        check_moment(&clocks, STEP, 8);
        check_moment(&clocks, 2 * STEP, 9);
    });
}

/// A reader that remembers a slot never gets a torn sample, one of another ticket or one of another owner from it.
#[test]
fn loom_the_slot_of_the_last_read_is_never_torn() {
    explore(3, || {
        let heap = Heap::new(2, 0);
        heap.publish(1);
        let writer = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || (2..=4).for_each(|v| heap.publish(v)))
        };
        let mut last = 0;
        for slot in [0, 1, 0] {
            if let Ok((time, bits)) = heap.newest_in(slot) {
                assert_eq!(time, bits as i64 * 10, "torn");
                assert_eq!((bits - 1) as usize % 2, slot, "the sample of another slot");
                assert!(bits >= last, "went back");
                last = bits;
            }
        }
        writer.join().unwrap();
        assert_eq!(heap.newest_in(0), Err(4), "sample 3 is in the other slot");
        assert_eq!(heap.newest_in(1), Ok((40, 4)));
    });
}

/// A reader that remembers a slot finds an unregistered vertex gone, also when its successor stores as many samples.
#[test]
fn loom_the_slot_of_the_last_read_is_not_of_another_owner() {
    explore(3, || {
        let heap = Heap::new(2, 0);
        heap.publish(1);
        let writer = {
            let heap = Arc::clone(&heap);
            thread::spawn(move || {
                heap.vertex().abandon();
                heap.vertex().adopt(OWNER + 1);
                let payload = Payload::Bits(99);
                heap.vertex().publish(OWNER + 1, at(99), payload, Origin::Measured);
            })
        };
        if let Ok(found) = heap.newest_in(0) {
            assert_eq!(found, (10, 1));
        }
        writer.join().unwrap();
        assert_eq!(heap.newest_in(0), Err(1));
    });
}

/// A reader that marked a vertex for the present interest has a mark that the publisher has not taken: what
/// `Vertex::mark_read` and `Publisher::take_interest` do.
#[test]
fn loom_a_mark_of_a_reader_is_not_lost() {
    explore(3, || {
        use crate::sync::Ordering::Relaxed;
        let [mark, interest, marked] = [0, 1, 0].map(AtomicU32::new);
        let words = Arc::new((mark, interest, marked));
        let read = |words: &(AtomicU32, AtomicU32, AtomicU32)| {
            if marks::is_due(&words.1, &words.2) {
                words.0.store(1, Relaxed);
            }
        };
        read(&words);
        let reader = {
            let words = Arc::clone(&words);
            thread::spawn(move || (0..2).for_each(|_| read(&words)))
        };
        assert_eq!(marks::take(&words.1, || words.0.swap(0, Relaxed)), 1, "it was read");
        reader.join().unwrap();
        let is_marked = words.2.load(Relaxed) == words.1.load(Relaxed);
        assert!(!is_marked || words.0.load(Relaxed) == 1, "the reader marks it never again");
    });
}
