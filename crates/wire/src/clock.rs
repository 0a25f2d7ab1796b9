//! How far a node's clock is from ours, as its batches tell.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use skopos_model::Timestamp;

/// How long a batch that came quickly bounds the estimate: clocks drift by some millionths, which are
/// microseconds in this time.
const WINDOW: Duration = Duration::from_secs(30);

/// An estimate from one-way delays: the batch that took the least time says most. It is too low by that
/// least time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockOffset {
    /// The greatest difference, the sender's time less ours, of this window and of the one before.
    best: [Option<i64>; 2],
    since: Option<Instant>,
}

impl ClockOffset {
    /// A batch that was sent at one time came at another, each by its own clock.
    pub(crate) fn note(&mut self, sent_at: Timestamp, came_at: Timestamp, now: Instant) {
        if self.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            self.best = [None, self.best[0]];
            self.since = Some(now);
        }
        let ahead = sent_at.as_nanos().saturating_sub(came_at.as_nanos());
        self.best[0] = Some(self.best[0].map_or(ahead, |best| best.max(ahead)));
    }

    /// Nanoseconds that its clock is ahead of ours, once anything came.
    pub(crate) fn nanos(&self) -> Option<i64> {
        self.best.into_iter().flatten().max()
    }
}

/// The time of day.
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_that_took_the_least_time_counts_until_it_is_old() {
        let (mut offset, start) = (ClockOffset::default(), Instant::now());
        assert_eq!(offset.nanos(), None);
        let mut note = |sent, came, seconds| {
            let at = Timestamp::from_nanos;
            offset.note(at(sent), at(came), start + Duration::from_secs(seconds));
            offset.nanos()
        };
        // A clock that is 1,000 ahead; batches took 10, 3 and 7.
        assert_eq!(note(2_000, 1_010, 0), Some(990));
        assert_eq!(note(3_000, 2_003, 1), Some(997));
        assert_eq!(note(4_000, 3_007, 31), Some(997));
        // It was set back: what it was before is forgotten in time.
        assert_eq!(note(4_000, 5_005, 61), Some(993));
        assert_eq!(note(5_000, 6_005, 92), Some(-1_005));
        assert_eq!(note(i64::MIN, i64::MAX, 93), Some(-1_005));
    }
}
