//! The difference between a node's clock and this machine's, estimated from the node's batches.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use skopos_model::Timestamp;

/// Time for which a fast batch bounds the estimate. Clocks drift by some millionths, which are
/// microseconds in this time.
const WINDOW: Duration = Duration::from_secs(30);

/// Difference to the estimate that no delay explains, if several batches have it one after the other: a clock was set back.
/// If the network held them up after all, the next fast batch mends the estimate.
const STEP: i64 = 500_000_000;

/// Number of batches that show a step.
const STEP_BATCHES: u8 = 3;

/// An estimate of a clock's offset from one-way delays. The batch with the shortest delay gives the best
/// bound; the estimate is too low by that delay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockOffset {
    /// The greatest difference, sender's time less receiver's, of this window and of the one before.
    best: [Option<i64>; 2],
    since: Option<Instant>,
    /// Number and greatest difference of the last batches that are all far below the estimate.
    below: (u8, Option<i64>),
}

impl ClockOffset {
    /// Notes a batch with its time of sending and of arrival, each by its own clock.
    pub(crate) fn note(&mut self, sent_at: Timestamp, received_at: Timestamp, now: Instant) {
        if self.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            self.best = [None, self.best[0]];
            self.since = Some(now);
        }
        let ahead = sent_at.as_nanos().saturating_sub(received_at.as_nanos());
        self.best[0] = self.best[0].max(Some(ahead));
        let is_below = self.nanos().is_some_and(|best| best.saturating_sub(ahead) > STEP);
        self.below = match self.below {
            (count, most) if is_below => (count + 1, most.max(Some(ahead))),
            _ => (0, None),
        };
        if self.below.0 == STEP_BATCHES {
            self.best = [self.below.1, None];
            self.below = (0, None);
        }
    }

    /// Returns the nanoseconds by which the sender's clock is ahead; `None` before the first batch.
    pub(crate) fn nanos(&self) -> Option<i64> {
        self.best.into_iter().flatten().max()
    }
}

/// Returns the time of day.
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_with_the_shortest_delay_counts_until_it_is_old() {
        let (mut offset, start) = (ClockOffset::default(), Instant::now());
        assert_eq!(offset.nanos(), None);
        let mut note = |sent, received, seconds| {
            let at = Timestamp::from_nanos;
            offset.note(at(sent), at(received), start + Duration::from_secs(seconds));
            offset.nanos()
        };
        // The clock is 1,000 ahead; the delays are 10, 3 and 7.
        assert_eq!(note(2_000, 1_010, 0), Some(990));
        assert_eq!(note(3_000, 2_003, 1), Some(997));
        assert_eq!(note(4_000, 3_007, 31), Some(997));
        // The clock is set back; the estimate follows after two windows.
        assert_eq!(note(4_000, 5_005, 61), Some(993));
        assert_eq!(note(5_000, 6_005, 92), Some(-1_005));
        assert_eq!(note(i64::MIN, i64::MAX, 93), Some(-1_005));
    }

    #[test]
    fn a_clock_that_is_set_back_counts_after_three_batches_and_a_slow_batch_does_not() {
        let (mut offset, start) = (ClockOffset::default(), Instant::now());
        let mut note = |ahead_ms: i64, seconds| {
            let at = |ms: i64| Timestamp::from_nanos(ms * 1_000_000);
            offset.note(at(ahead_ms), at(0), start + Duration::from_secs(seconds));
            offset.nanos().map(|nanos| nanos / 1_000_000)
        };
        assert_eq!(note(40, 0), Some(40));
        assert_eq!([note(-2_000, 1), note(-1_000, 1), note(40, 1)], [Some(40); 3], "a stall");
        assert_eq!([note(-3_600_000, 2), note(-3_599_998, 3)], [Some(40); 2]);
        assert_eq!(note(-3_600_001, 4), Some(-3_599_998), "an hour back");
        assert_eq!(note(-3_599_999, 35), Some(-3_599_998));
    }
}
