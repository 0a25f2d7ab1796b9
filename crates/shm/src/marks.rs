//! The marks by which readers tell a publisher that they read a vertex, and the publisher's way to take them.
//!
//! # Protocol
//! A reader sets its mark once for each value of `interest` in the head of the vertex: readers on many cores share the
//! cache line of the marks. The publisher takes the marks first and raises `interest` then, so a reader that sees the
//! new value sets a mark that is not taken yet. A reader that sets it in between may set it twice.

use crate::sync::{AcquireLoad as _, AtomicU32, Ordering};

/// The publisher's part: takes the marks by `take`, and has readers set them again.
#[inline]
pub(crate) fn take<T>(interest: &AtomicU32, take: impl FnOnce() -> T) -> T {
    let taken = take();
    // SYNC: pairs with the Acquire load in `is_due`: a reader that sees the new number marks after `take`.
    interest.fetch_add(1, Ordering::Release);
    taken
}

/// The reader's part: returns true if the mark is to be set now. `marked` is the interest for which the reader set it.
#[inline(always)]
pub(crate) fn is_due(interest: &AtomicU32, marked: &AtomicU32) -> bool {
    // SYNC: pairs with the Release in `take`, which takes the marks first.
    let interest = interest.load_acquire();
    let is_due = marked.load(Ordering::Relaxed) != interest;
    if is_due {
        marked.store(interest, Ordering::Relaxed);
    }
    is_due
}
