//! Waiting for news without spinning, at no cost to a writer that nobody waits for.
//!
//! Two words: a *flag* that waiters raise (in a page they may write) and an *epoch* that writers
//! raise (in a page that only the writer may write, and that waiters sleep on). A writer looks at
//! the flag after each publish; only when it is up does it lower it, raise the epoch and wake the
//! sleepers. A waiter that dies leaves a raised flag behind, which costs its writer one wake.

use crate::sync::{AtomicU32, Ordering, fence};

/// Both words of one place to wait at.
#[derive(Clone, Copy)]
pub(crate) struct Bell<'a> {
    /// Not 0 if somebody may be asleep.
    pub(crate) flag: &'a AtomicU32,
    /// Changes whenever sleepers are woken.
    pub(crate) epoch: &'a AtomicU32,
}

/// Puts a thread to sleep on a word and wakes it: the futex system call, or loom's stand-in.
pub(crate) trait Sleep {
    /// Sleeps while `word` holds `seen`; returns on a wake, or early for no reason at all.
    fn sleep(&self, word: &AtomicU32, seen: u32);
    /// Wakes everyone who sleeps on `word`.
    fn wake(&self, word: &AtomicU32);
}

/// Between publishing and ringing the bells for it, and between raising flags and looking at the
/// data. One call serves any number of both, which is why it is not part of `ring`: a full fence
/// costs as much as storing a sample.
#[inline]
pub(crate) fn settle() {
    // SYNC: with itself on the other side: either `ring`, after this fence, sees the waiter's flag,
    // or the waiter's look at the data sees what was published before it. Never neither.
    fence(Ordering::SeqCst);
}

impl Bell<'_> {
    /// After a publish and [`settle`]: wakes those who wait for it, if there are any. True if it
    /// did.
    #[inline]
    pub(crate) fn ring(&self, sleep: &impl Sleep) -> bool {
        if self.flag.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.flag.store(0, Ordering::Relaxed);
        // SYNC: Release pairs with the Acquire load of the epoch in `wait`: a waiter that sees the
        // new epoch raises its flag after this store of 0, so the flag is not lost.
        self.epoch.fetch_add(1, Ordering::Release);
        sleep.wake(self.epoch);
        true
    }

    /// Says that somebody is about to sleep here; the epoch to sleep on. [`settle`] and a look at
    /// the data come next, then the sleep.
    pub(crate) fn raise(&self) -> u32 {
        // SYNC: pairs with the Release in `ring`.
        let seen = self.epoch.load(Ordering::Acquire);
        self.flag.store(1, Ordering::Relaxed);
        seen
    }

    /// Sleeps once, unless `ready` finds something. True if `ready` did. May return false early:
    /// the caller looks at its clock and tries again.
    pub(crate) fn wait(&self, sleep: &impl Sleep, mut ready: impl FnMut() -> bool) -> bool {
        let seen = self.raise();
        settle();
        if ready() {
            return true;
        }
        sleep.sleep(self.epoch, seen);
        ready()
    }
}
