//! The difference of the machine's two clocks, which a publisher keeps between its publishes.
//!
//! # Protocol
//! Three words in the memory of the publisher: the difference, the time for which it was read, and a sequence number,
//! which is odd while a thread changes the other two. A thread that finds them half changed reads the clocks itself, so
//! no thread ever waits for another one.
//!
//! A publisher also publishes values that are older than its last one, as an insight of an old input. Such a time looks like
//! that of a clock that was set back. The clock tells them apart: after it was set back, the new times are near to it.

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

/// The difference of the two clocks, with the time from which on it holds for [`CLOCKS_HOLD_NS`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Difference {
    /// UNIX time minus `CLOCK_BOOTTIME`, ns.
    offset: i64,
    /// The time for which the clocks were read.
    since: i64,
}

impl Difference {
    /// Returns true if the difference holds at `time`.
    #[inline(always)]
    pub(crate) fn holds(self, time: Timestamp) -> bool {
        // A step back makes the difference negative, which is a great number here.
        time.as_nanos().wrapping_sub(self.since).cast_unsigned() < CLOCKS_HOLD_NS
    }

    /// Returns the moment of `time` on both clocks.
    #[inline(always)]
    pub(crate) fn moment(self, time: Timestamp) -> Moment {
        let time = time.as_nanos();
        let boottime = time.wrapping_sub(self.offset);
        // Zero means that it is not known.
        Moment { time, boottime: if boottime == 0 { 1 } else { boottime } }
    }
}

/// Both clocks, read one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BothClocks {
    /// UNIX time, ns.
    pub(crate) now: i64,
    /// `CLOCK_BOOTTIME`, ns.
    pub(crate) boottime: i64,
}

impl Default for Clocks {
    fn default() -> Self {
        Self { sequence: AtomicU32::new(0), offset: AtomicI64::new(0), since: AtomicI64::new(0) }
    }
}

impl Clocks {
    /// Returns the moment of `time` on both clocks; `read` reads them.
    #[inline]
    pub(crate) fn moment(&self, time: Timestamp, read: impl FnOnce() -> BothClocks) -> Moment {
        self.difference(time, read).moment(time)
    }

    /// Returns the difference of the clocks at `time`; `read` reads them if the kept difference does not hold.
    #[inline]
    pub(crate) fn difference(
        &self,
        time: Timestamp,
        read: impl FnOnce() -> BothClocks,
    ) -> Difference {
        match self.kept(time) {
            Some(difference) => difference,
            None => self.renewed(time.as_nanos(), read()),
        }
    }

    /// Returns the difference that holds at `time`, unless it is too old or is being changed.
    #[inline]
    fn kept(&self, time: Timestamp) -> Option<Difference> {
        // SYNC: pairs with the Release store in `renewed`.
        let before = self.sequence.load_acquire();
        let (offset, since) =
            (self.offset.load(Ordering::Relaxed), self.since.load(Ordering::Relaxed));
        // SYNC: pairs with the Release fence in `renewed`.
        fence(Ordering::Acquire);
        let is_whole = before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before;
        let difference = Difference { offset, since };
        (is_whole && difference.holds(time)).then_some(difference)
    }

    /// Returns the difference of clocks that were read for `time`, and keeps it for later times, unless another thread is
    /// keeping one at this moment.
    #[cold]
    fn renewed(&self, time: i64, clocks: BothClocks) -> Difference {
        let offset = clocks.now.wrapping_sub(clocks.boottime);
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
            if self.is_better(time, clocks.now) {
                // SYNC: pairs with the Acquire fence in `kept`: a thread that sees any of the stores below sees the
                // odd number, or a later one, when it looks again.
                fence(Ordering::Release);
                self.offset.store(offset, Ordering::Relaxed);
                self.since.store(time, Ordering::Relaxed);
            }
            // SYNC: pairs with the Acquire load in `kept`.
            self.sequence.store(before.wrapping_add(2), Ordering::Release);
        }
        Difference { offset, since: time }
    }

    /// Returns true if a difference for `time` serves later publishes better than the kept one does: the time is later, or
    /// nearer to `now`, as after the clock was set back. Only for the thread that made the sequence number odd.
    fn is_better(&self, time: i64, now: i64) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        time >= since || now.abs_diff(time) < now.abs_diff(since)
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
            clocks.moment(at, || BothClocks { now: offset + uptime, boottime: uptime }).boottime
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

    /// A time, relative to the first one: that of a publish, and that of the clock; and the number of reads until then.
    type Publish = (i64, i64, u32);

    fn check_reads(publishes: &[Publish]) {
        const START: i64 = 1_700_000_000_000_000_000;
        let (clocks, reads) = (Clocks::default(), std::cell::Cell::new(0));
        for (at, now, expected) in publishes {
            clocks.moment(Timestamp::from_nanos(START + at), || {
                reads.set(reads.get() + 1);
                BothClocks { now: START + now, boottime: now + 1000 }
            });
            assert_eq!(reads.get(), *expected, "{at} at {now}");
        }
    }

    /// The clocks are read once in the time for which their difference holds.
    #[test]
    fn the_clocks_are_read_again_only_when_their_difference_is_old() {
        const HOLD: i64 = CLOCKS_HOLD_NS.cast_signed();
        check_reads(&[(0, 0, 1), (1, 1, 1), (HOLD - 1, HOLD - 1, 1), (HOLD, HOLD, 2)]);
        // Times of a recording.
        check_reads(&[(-900 * HOLD, 0, 1), (-900 * HOLD + 1, 1, 1), (-899 * HOLD, 2, 2)]);
    }

    #[test]
    fn a_publish_with_another_time_leaves_the_difference_to_the_others() {
        const MINUTE: i64 = 60_000_000_000;
        check_reads(&[
            (0, 0, 1),
            (-MINUTE, 1, 2),
            (2, 2, 2),
            (-MINUTE, 3, 3),
            (4, 4, 3),
            // A time that has not come yet costs the next one a read, and not all others.
            (MINUTE, 5, 4),
            (6, 6, 5),
            (7, 7, 5),
        ]);
    }
}
