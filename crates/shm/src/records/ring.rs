//! The protocol of one ring of records: one writer that never waits, and readers that write nothing.
//!
//! The writer says which slots it overwrites, makes a release fence, and overwrites them. A reader that copies any word of a new
//! record sees, after its acquire fence, that the slot was reserved, so it knows that the old record is torn. Records that
//! belong together become visible together.

use crate::records::layout::{RecordSlot, RingHead};
use crate::sync::{AcquireLoad as _, AtomicU32, AtomicU64, Ordering, fence};

/// Number of words of a record.
pub(crate) const WORDS: usize = 8;

/// The greatest number of records that a ring can have got: a billion a second for a century. A greater head is damaged.
const MAX_COUNT: u64 = 1 << 62;

/// A ring in memory.
#[derive(Clone, Copy)]
pub(crate) struct RawRing<'m> {
    pub(crate) head: &'m RingHead,
    /// A power of two.
    pub(crate) slots: &'m [RecordSlot],
}

/// The outcome of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Number of the first record that was copied.
    pub first: u64,
    /// Number of the record at which the next drain goes on.
    pub next: u64,
    /// Records that were overwritten before they were copied.
    pub lost: u64,
}

/// Writes `records`, the first of them number `ticket`, into the slots that `slot` returns for their numbers. The caller is the
/// only writer of the ring, `ticket` is its head, and there are fewer records than slots.
#[inline(always)]
pub(crate) fn write<'m>(
    head: &RingHead,
    slot: impl Fn(u64) -> &'m RecordSlot,
    ticket: u64,
    records: &[[u64; WORDS]],
) {
    let next = ticket + records.len() as u64;
    head.reserved.store(next, Ordering::Relaxed);
    // SYNC: pairs with the Acquire fence in `RawRing::copy`: a reader that sees any word of these records sees `reserved`.
    fence(Ordering::Release);
    for (ticket, words) in (ticket..).zip(records) {
        for (place, word) in slot(ticket).0.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
    }
    // SYNC: pairs with the Acquire load of the head in `RawRing::count`.
    head.head.store(next, Ordering::Release);
}

impl RawRing<'_> {
    /// Returns the number of records that were ever written.
    pub(crate) fn count(&self) -> u64 {
        // SYNC: pairs with the Release store in `write`.
        self.head.head.load_acquire().min(MAX_COUNT)
    }

    /// Hands the records from number `from` on to `take`, at most `limit`, each with its number, before it is known which
    /// of them are whole. Returns the whole ones: they are the last of those that were handed over.
    pub(crate) fn copy(
        &self,
        from: u64,
        limit: u64,
        mut take: impl FnMut(u64, [u64; WORDS]),
    ) -> Drained {
        let (head, capacity) = (self.count(), self.slots.len() as u64);
        // A head that went back is of a damaged file: begin again at it.
        let from = from.min(head);
        let first = from.max(head.saturating_sub(capacity));
        let next = head.min(first.saturating_add(limit));
        for ticket in first..next {
            if let Some(slot) = self.slots.get((ticket % capacity) as usize) {
                take(ticket, std::array::from_fn(|at| slot.0[at].load(Ordering::Relaxed)));
            }
        }
        // SYNC: pairs with the Release fence in `write`.
        fence(Ordering::Acquire);
        let reserved = self.head.reserved.load(Ordering::Relaxed).min(MAX_COUNT);
        let whole = first.max(reserved.saturating_sub(capacity)).min(next);
        Drained { first: whole, next, lost: whole - from }
    }
}

/// Four words that change together: the clock of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockWords(pub(crate) [u64; 4]);

/// Changes the words. The caller is the only writer.
pub(crate) fn write_clock(version: &AtomicU32, places: [&AtomicU64; 4], words: ClockWords) {
    let before = version.load(Ordering::Relaxed);
    version.store(before.wrapping_add(1), Ordering::Relaxed);
    // SYNC: pairs with the Acquire fence in `read_clock`.
    fence(Ordering::Release);
    for (place, word) in places.into_iter().zip(words.0) {
        place.store(word, Ordering::Relaxed);
    }
    // SYNC: pairs with the Acquire load in `read_clock`.
    version.store(before.wrapping_add(2), Ordering::Release);
}

/// Makes one attempt to read the words; `None` if they are being changed.
pub(crate) fn read_clock(version: &AtomicU32, places: [&AtomicU64; 4]) -> Option<ClockWords> {
    // SYNC: pairs with the Release store in `write_clock`.
    let before = version.load_acquire();
    let words = ClockWords(places.map(|place| place.load(Ordering::Relaxed)));
    // SYNC: pairs with the Release fence in `write_clock`.
    fence(Ordering::Acquire);
    let is_whole = before.is_multiple_of(2) && version.load(Ordering::Relaxed) == before;
    is_whole.then_some(words)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A ring on the heap.
    pub(crate) struct HeapRing {
        pub(crate) head: RingHead,
        pub(crate) slots: Vec<RecordSlot>,
    }

    impl HeapRing {
        pub(crate) fn new(capacity: usize) -> Self {
            let zero = || AtomicU64::new(0);
            let head = RingHead {
                head: zero(),
                thread: AtomicU32::new(0),
                claims: AtomicU32::new(0),
                reserved: zero(),
                unused: std::array::from_fn(|_| zero()),
                drained: zero(),
                unused_2: std::array::from_fn(|_| zero()),
            };
            let slot = |_| RecordSlot(std::array::from_fn(|_| zero()));
            Self { head, slots: (0..capacity).map(slot).collect() }
        }

        pub(crate) fn ring(&self) -> RawRing<'_> {
            RawRing { head: &self.head, slots: &self.slots }
        }

        /// Writes records from number `ticket` on, whose words all follow from their numbers.
        pub(crate) fn push(&self, ticket: u64, count: u64) {
            let words = |ticket| std::array::from_fn(|at| ticket * 10 + at as u64);
            let records: Vec<[u64; WORDS]> = (ticket..ticket + count).map(words).collect();
            let slot = |ticket| &self.slots[ticket as usize % self.slots.len()];
            write(&self.head, slot, ticket, &records);
        }

        /// Drains from `from` on, checks each whole record, and returns the next number and the lost ones.
        pub(crate) fn drain(&self, from: u64, limit: u64) -> Drained {
            let mut copies = Vec::new();
            let drained =
                self.ring().copy(from, limit, |ticket, words| copies.push((ticket, words)));
            for (ticket, words) in copies.into_iter().filter(|(ticket, _)| *ticket >= drained.first)
            {
                assert_eq!(words, std::array::from_fn(|at| ticket * 10 + at as u64), "torn");
            }
            assert_eq!(from + drained.lost, drained.first);
            drained
        }
    }

    #[cfg(not(loom))]
    mod real {
        use super::*;

        /// Number of records. Miri is hundreds of times slower.
        const RECORDS: u64 = if cfg!(miri) { 300 } else { 900_000 };

        #[test]
        fn a_full_ring_keeps_the_last_records() {
            let ring = HeapRing::new(8);
            assert_eq!(ring.drain(0, 100), Drained::default());
            (0..5).for_each(|ticket| ring.push(ticket, 1));
            assert_eq!(ring.drain(0, 3), Drained { first: 0, next: 3, lost: 0 });
            (0..5).for_each(|group| ring.push(5 + 3 * group, 3));
            assert_eq!(ring.drain(3, 100), Drained { first: 12, next: 20, lost: 9 });
            // Killed while it wrote two records.
            ring.head.reserved.store(22, Ordering::Relaxed);
            assert_eq!(ring.drain(0, 100), Drained { first: 14, next: 20, lost: 14 });
            // From a damaged file: a head that no writer can have reached.
            ring.head.head.store(u64::MAX, Ordering::Relaxed);
            ring.head.reserved.store(u64::MAX, Ordering::Relaxed);
            assert_eq!(ring.ring().copy(20, 1, |_, _| ()).next, MAX_COUNT - 7);
        }

        #[test]
        fn each_record_is_drained_once_or_counted_as_lost() {
            let ring = HeapRing::new(16);
            std::thread::scope(|scope| {
                let writer =
                    scope.spawn(|| (0..RECORDS / 3).for_each(|group| ring.push(3 * group, 3)));
                let (mut at, mut lost, mut read) = (0, 0, 0);
                while at < RECORDS {
                    let drained = ring.drain(at, 100);
                    lost += drained.lost;
                    read += drained.next - drained.first;
                    at = drained.next;
                    std::thread::yield_now();
                }
                writer.join().expect("no panic");
                assert_eq!(read + lost, RECORDS);
            });
        }

        #[test]
        fn a_clock_is_read_whole() {
            let (version, words) = (AtomicU32::new(0), [0; 4].map(AtomicU64::new));
            let places = || words.each_ref();
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    for round in 0..RECORDS.min(10_000) {
                        write_clock(&version, places(), ClockWords([round; 4]));
                    }
                });
                while !writer.is_finished() {
                    if let Some(ClockWords(read)) = read_clock(&version, places()) {
                        assert_eq!(read, [read[0]; 4]);
                    }
                }
            });
        }
    }

    /// Explores every interleaving, on the smallest rings that can fail.
    #[cfg(loom)]
    mod loom_rings {
        use loom::sync::Arc;
        use loom::thread;

        use super::*;

        fn explore(model: impl Fn() + Sync + Send + 'static) {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(2);
            builder.check(model);
        }

        #[test]
        fn loom_each_record_is_drained_whole_once_or_lost() {
            explore(|| {
                let ring = Arc::new(HeapRing::new(2));
                ring.push(0, 1);
                let writer = {
                    let ring = Arc::clone(&ring);
                    thread::spawn(move || {
                        ring.push(1, 1);
                        ring.push(2, 1);
                    })
                };
                let first = ring.drain(0, 2);
                writer.join().unwrap();
                let last = ring.drain(first.next, 8);
                let whole = |drained: &Drained| drained.next - drained.first;
                let accounted = first.lost + whole(&first) + last.lost + whole(&last);
                assert_eq!((last.next, accounted), (3, 3));
            });
        }

        /// A group that overwrites both slots of the ring.
        #[test]
        fn loom_records_that_belong_together_come_together() {
            explore(|| {
                let ring = Arc::new(HeapRing::new(2));
                ring.push(0, 1);
                let writer = {
                    let ring = Arc::clone(&ring);
                    thread::spawn(move || ring.push(1, 2))
                };
                let drained = ring.drain(0, 8);
                assert!([1, 3].contains(&drained.next), "a part of a group");
                writer.join().unwrap();
                assert_eq!(ring.drain(0, 8), Drained { first: 1, next: 3, lost: 1 });
            });
        }

        #[test]
        fn loom_a_clock_is_read_whole_or_not_at_all() {
            explore(|| {
                let version = Arc::new(AtomicU32::new(0));
                let words: Arc<[AtomicU64; 4]> =
                    Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
                let writer = {
                    let (version, words) = (Arc::clone(&version), Arc::clone(&words));
                    thread::spawn(move || {
                        (1..3).for_each(|round| {
                            write_clock(&version, words.each_ref(), ClockWords([round; 4]));
                        });
                    })
                };
                if let Some(ClockWords(read)) = read_clock(&version, words.each_ref()) {
                    assert_eq!(read, [read[0]; 4]);
                }
                writer.join().unwrap();
            });
        }
    }
}
