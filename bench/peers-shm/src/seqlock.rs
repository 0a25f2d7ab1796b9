//! The least that a shared value can cost: a sequence number, a time and a value in a cache line, with one writer.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// A value behind a sequence number, which is odd while a writer changes it.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Seqlock {
    sequence: AtomicU64,
    time: AtomicI64,
    value: AtomicU64,
}

impl Seqlock {
    #[inline]
    pub(crate) fn write(&self, time: i64, value: u64) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // SYNC: pairs with the Acquire fence in `read`.
        fence(Ordering::Release);
        self.time.store(time, Ordering::Relaxed);
        self.value.store(value, Ordering::Relaxed);
        // SYNC: pairs with the Acquire load in `read`.
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    #[inline]
    pub(crate) fn read(&self) -> (i64, u64) {
        loop {
            // SYNC: pairs with the Release store in `write`.
            let before = self.sequence.load(Ordering::Acquire);
            let found = (self.time.load(Ordering::Relaxed), self.value.load(Ordering::Relaxed));
            // SYNC: pairs with the Release fence in `write`.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return found;
            }
        }
    }
}
