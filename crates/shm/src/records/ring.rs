//! The protocol of one ring of records: one writer that never waits, and readers that write nothing.
//!
//! The writer makes a release fence before it overwrites a slot. A reader that copies any word of the new record sees, after
//! its acquire fence, a `head` that is at least the number of that record, so it knows that the old one is torn.

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

/// Writes record `ticket` into its `slot`. The caller is the only writer of the ring, and `ticket` is its head.
#[inline(always)]
pub(crate) fn write(head: &AtomicU64, slot: &RecordSlot, ticket: u64, words: &[u64; WORDS]) {
    // SYNC: pairs with the Acquire fence in `RawRing::copy`: a reader that sees any word of this record sees the head that
    // was stored before.
    fence(Ordering::Release);
    for (place, word) in slot.0.iter().zip(words) {
        place.store(*word, Ordering::Relaxed);
    }
    // SYNC: pairs with the Acquire load of the head in `RawRing::copy`.
    head.store(ticket + 1, Ordering::Release);
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
        let first = from.max((head + 1).saturating_sub(capacity));
        let next = head.min(first.saturating_add(limit));
        for ticket in first..next {
            if let Some(slot) = self.slots.get((ticket % capacity) as usize) {
                take(ticket, std::array::from_fn(|at| slot.0[at].load(Ordering::Relaxed)));
            }
        }
        // SYNC: pairs with the Release fence in `write`.
        fence(Ordering::Acquire);
        let head = self.head.head.load(Ordering::Relaxed).min(MAX_COUNT);
        let whole = first.max((head + 1).saturating_sub(capacity)).min(next);
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
                reserved: std::array::from_fn(|_| zero()),
                drained: zero(),
                reserved_2: std::array::from_fn(|_| zero()),
            };
            let slot = |_| RecordSlot(std::array::from_fn(|_| zero()));
            Self { head, slots: (0..capacity).map(slot).collect() }
        }

        pub(crate) fn ring(&self) -> RawRing<'_> {
            RawRing { head: &self.head, slots: &self.slots }
        }

        /// Writes record `ticket`, whose words all follow from its number.
        pub(crate) fn push(&self, ticket: u64) {
            let slot = &self.slots[ticket as usize % self.slots.len()];
            write(
                &self.head.head,
                slot,
                ticket,
                &std::array::from_fn(|at| ticket * 10 + at as u64),
            );
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
        const RECORDS: u64 = if cfg!(miri) { 300 } else { 1_000_000 };

        #[test]
        fn a_full_ring_keeps_the_last_records() {
            let ring = HeapRing::new(8);
            assert_eq!(ring.drain(0, 100), Drained::default());
            (0..5).for_each(|ticket| ring.push(ticket));
            assert_eq!(ring.drain(0, 3), Drained { first: 0, next: 3, lost: 0 });
            (5..20).for_each(|ticket| ring.push(ticket));
            assert_eq!(ring.drain(3, 100), Drained { first: 13, next: 20, lost: 10 });
            // From a damaged file: a head that no writer can have reached.
            ring.head.head.store(u64::MAX, Ordering::Relaxed);
            assert_eq!(ring.ring().copy(20, 1, |_, _| ()).next, MAX_COUNT - 6);
        }

        #[test]
        fn each_record_is_drained_once_or_counted_as_lost() {
            let ring = HeapRing::new(16);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| (0..RECORDS).for_each(|ticket| ring.push(ticket)));
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
            builder.preemption_bound = Some(3);
            builder.check(model);
        }

        #[test]
        fn loom_each_record_is_drained_whole_once_or_lost() {
            explore(|| {
                let ring = Arc::new(HeapRing::new(2));
                ring.push(0);
                let writer = {
                    let ring = Arc::clone(&ring);
                    thread::spawn(move || (1..4).for_each(|ticket| ring.push(ticket)))
                };
                let (mut at, mut accounted) = (0, 0);
                for _ in 0..2 {
                    let drained = ring.drain(at, 2);
                    accounted += drained.lost + (drained.next - drained.first);
                    at = drained.next;
                }
                writer.join().unwrap();
                let drained = ring.drain(at, 8);
                accounted += drained.lost + (drained.next - drained.first);
                assert_eq!((drained.next, accounted), (4, 4));
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
