//! The difference of the machine's two clocks, which a publisher keeps between its publishes.
//!
//! # Protocol
//! Three words in the memory of the publisher: the difference, the time for which it was read, and a sequence number,
//! which is odd while a thread changes the other two. A thread that finds them half changed reads the clocks itself, so
//! no thread ever waits for another one.

use skopos_model::Timestamp;

use crate::ring::Moment;
use crate::sync::{AcquireLoad as _, AtomicI64, AtomicU32, Ordering, fence};

/// The difference of the two clocks. It is kept, because reading them costs several times a publish.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// Odd while a thread changes the other two words.
    sequence: AtomicU32,
    /// UNIX time minus `CLOCK_BOOTTIME` at the last reading, ns.
    offset: AtomicI64,
    /// The time for which the clocks were read.
    since: AtomicI64,
}

/// Time for which the difference of the clocks holds: a step of the clock makes ages wrong for at most so long, and
/// by at most so much.
pub(crate) const CLOCKS_HOLD_NS: u64 = 1_000_000_000;

impl Default for Clocks {
    fn default() -> Self {
        Self { sequence: AtomicU32::new(0), offset: AtomicI64::new(0), since: AtomicI64::new(0) }
    }
}

impl Clocks {
    /// Returns the moment of `time` on both clocks; `read` returns UNIX time minus `CLOCK_BOOTTIME`.
    #[inline]
    pub(crate) fn moment(&self, time: Timestamp, read: impl FnOnce() -> i64) -> Moment {
        let time = time.as_nanos();
        let offset = match self.kept(time) {
            Some(offset) => offset,
            None => self.renewed(time, read()),
        };
        let boottime = time.wrapping_sub(offset);
        // Zero means that it is not known.
        Moment { time, boottime: if boottime == 0 { 1 } else { boottime } }
    }

    /// Returns the difference that holds at `time`, unless it is too old or is being changed.
    #[inline]
    fn kept(&self, time: i64) -> Option<i64> {
        // SYNC: pairs with the Release store in `renewed`.
        let before = self.sequence.load_acquire();
        let (offset, since) =
            (self.offset.load(Ordering::Relaxed), self.since.load(Ordering::Relaxed));
        // SYNC: pairs with the Release fence in `renewed`.
        fence(Ordering::Acquire);
        let is_whole = before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before;
        // A step back makes the difference negative, which is a great number here.
        let holds = time.wrapping_sub(since).cast_unsigned() < CLOCKS_HOLD_NS;
        (is_whole && holds).then_some(offset)
    }

    /// Keeps `offset`, which was read for `time`, unless another thread is keeping one at this moment.
    #[cold]
    fn renewed(&self, time: i64, offset: i64) -> i64 {
        let before = self.sequence.load(Ordering::Relaxed);
        let is_free = before.is_multiple_of(2)
            // SYNC: Acquire pairs with the Release store below, by the thread before.
            && self.sequence.compare_exchange(
                before,
                before.wrapping_add(1),
                Ordering::Acquire,
                Ordering::Relaxed,
            ).is_ok();
        if is_free {
            // SYNC: pairs with the Acquire fence in `kept`: a thread that sees any of the stores below sees the odd
            // number, or a later one, when it looks again.
            fence(Ordering::Release);
            self.offset.store(offset, Ordering::Relaxed);
            self.since.store(time, Ordering::Relaxed);
            // SYNC: pairs with the Acquire load in `kept`.
            self.sequence.store(before.wrapping_add(2), Ordering::Release);
        }
        offset
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;

    /// The moment of each time of the publisher's clock is that of the clock that never steps.
    #[test]
    fn a_step_of_the_clock_does_not_move_the_moment_of_a_poll() {
        const HOUR: i64 = 3_600_000_000_000;
        const SECOND: i64 = 1_000_000_000;
        let clocks = Clocks::default();
        let moment = |offset: i64, uptime: i64| {
            let at = Timestamp::from_nanos(offset + uptime);
            clocks.moment(at, || offset).boottime
        };
        let right = 1_700_000_000 * SECOND;
        assert_eq!(moment(right, 5 * SECOND), 5 * SECOND);
        // An hour back, an hour on, and after seconds of a clock that runs too fast.
        assert_eq!(moment(right - HOUR, 6 * SECOND), 6 * SECOND);
        assert_eq!(moment(right + HOUR, 7 * SECOND), 7 * SECOND);
        for second in 8..20 {
            assert_eq!(moment(right + HOUR + second, second * SECOND), second * SECOND);
        }
        // Before the machine started, and the moment at which it did, which is not "unknown".
        assert_eq!(moment(right, -HOUR), -HOUR);
        assert_eq!(moment(right, 0), 1);
    }

    /// The clocks are read once in the time for which their difference holds.
    #[test]
    fn the_clocks_are_read_again_only_when_their_difference_is_old() {
        let clocks = Clocks::default();
        let reads = std::cell::Cell::new(0);
        let start = 1_700_000_000_000_000_000;
        for (later, expected) in [(0, 1), (1, 1), (CLOCKS_HOLD_NS - 1, 1), (CLOCKS_HOLD_NS, 2)] {
            let at = Timestamp::from_nanos(start + later.cast_signed());
            clocks.moment(at, || {
                reads.set(reads.get() + 1);
                start
            });
            assert_eq!(reads.get(), expected, "{later}");
        }
    }
}
