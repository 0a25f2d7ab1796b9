//! Waiting for new samples without spinning, at no cost to a writer without waiters.
//!
//! Two words take part: a *flag* that waiters raise (in a page that they may write) and an *epoch* that
//! the writer raises (in a page that only the writer may write, and that waiters sleep on). The writer
//! reads the flag after each publish. Only if the flag is up, the writer lowers it, raises the epoch and
//! wakes the sleepers. A waiter that dies leaves a raised flag behind, which costs the writer one
//! wake-up.
//!
//! Between its publish and its look at the flag the writer needs a full fence, which costs as much as the rest of a
//! publish. Where the kernel has `membarrier`, a waiter has that fence made on the writer's processor, by a system
//! call, and the writer makes none ([`settle_quickly`]).

use crate::sync::{AcquireLoad as _, AtomicU32, Ordering, fence};

/// The two words of one thing that readers can wait for.
#[derive(Clone, Copy)]
pub(crate) struct Bell<'a> {
    /// Not 0 if a waiter may be asleep.
    pub(crate) flag: &'a AtomicU32,
    /// Changes whenever sleepers are woken.
    pub(crate) epoch: &'a AtomicU32,
}

/// Puts a thread to sleep on a word and wakes it: the futex system call, or loom's stand-in.
pub(crate) trait Sleep {
    /// Sleeps while `word` holds `seen`; returns on a wake-up, or early without a reason.
    fn sleep(&self, word: &AtomicU32, seen: u32);
    /// Wakes all threads that sleep on `word`.
    fn wake(&self, word: &AtomicU32);
}

/// The fence between a publish and its bells, and between raising flags and reading the data. One call
/// serves any number of bells, so it is not part of `ring`: a full fence costs as much as storing a
/// sample.
#[inline]
pub(crate) fn settle() {
    // SYNC: with itself on the other side: either `ring`, after this fence, sees the waiter's flag,
    // or the waiter's read of the data sees the samples that were published before the fence. At least
    // one of the two happens.
    fence(Ordering::SeqCst);
}

/// The writer's [`settle`] where waiters call `membarrier`: the compiler keeps the order, and the fence that a waiter
/// causes on this processor comes before the loads of the flags or after the stores of the samples.
#[cfg(not(loom))]
#[inline]
pub(crate) fn settle_quickly() {
    // SYNC: pairs with `Segment::announce`.
    crate::sync::compiler_fence(Ordering::SeqCst);
}

impl Bell<'_> {
    /// Returns true if a waiter may be asleep; after [`settle`], like [`ring`](Self::ring).
    #[inline(always)]
    pub(crate) fn is_up(flag: &AtomicU32) -> bool {
        flag.load(Ordering::Relaxed) != 0
    }

    /// Returns true if one of two flags is up, as [`is_up`](Self::is_up) of each.
    #[inline(always)]
    pub(crate) fn is_any_up(one: &AtomicU32, other: &AtomicU32) -> bool {
        one.load(Ordering::Relaxed) | other.load(Ordering::Relaxed) != 0
    }

    /// Wakes the waiters, if there are any; called after a publish and [`settle`]. Returns true if it
    /// woke.
    #[inline]
    pub(crate) fn ring(&self, sleep: &impl Sleep) -> bool {
        if !Self::is_up(self.flag) {
            return false;
        }
        self.flag.store(0, Ordering::Relaxed);
        // SYNC: Release pairs with the Acquire load of the epoch in `wait`: a waiter that sees the
        // new epoch raises its flag after this store of 0, so the flag is not lost.
        self.epoch.fetch_add(1, Ordering::Release);
        sleep.wake(self.epoch);
        true
    }

    /// Announces a waiter and returns the epoch to sleep on. The caller then calls `announce`, reads
    /// the data once more, and sleeps.
    pub(crate) fn raise(&self) -> u32 {
        // SYNC: pairs with the Release in `ring`.
        let seen = self.epoch.load_acquire();
        self.flag.store(1, Ordering::Relaxed);
        seen
    }

    /// Sleeps once, unless `ready` returns true after `announce`, which is [`settle`] or more. Returns the last result
    /// of `ready`. May return false early: the caller checks its clock and tries again.
    pub(crate) fn wait(
        &self,
        sleep: &impl Sleep,
        announce: impl FnOnce(),
        mut ready: impl FnMut() -> bool,
    ) -> bool {
        let seen = self.raise();
        announce();
        if ready() {
            return true;
        }
        sleep.sleep(self.epoch, seen);
        ready()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    struct Diary(RefCell<Vec<&'static str>>);

    impl Sleep for &Diary {
        fn sleep(&self, _: &AtomicU32, _: u32) {
            self.0.borrow_mut().push("sleep");
        }

        fn wake(&self, _: &AtomicU32) {}
    }

    /// The fence that a waiter makes for the writer orders the flag before it and the look at the data after it.
    #[test]
    fn a_waiter_raises_its_flag_then_makes_the_fence_then_looks() {
        let (flag, epoch) = (AtomicU32::new(0), AtomicU32::new(0));
        let diary = Diary(RefCell::default());
        let write = |what| {
            let is_up = flag.load(Ordering::Relaxed) == 1;
            diary.0.borrow_mut().push(if is_up { what } else { "without a flag" });
        };
        let bell = Bell { flag: &flag, epoch: &epoch };
        let ready = || {
            write("look");
            false
        };
        assert!(!bell.wait(&&diary, || write("fence"), ready));
        assert_eq!(*diary.0.borrow(), ["fence", "look", "sleep", "look"]);
    }
}
