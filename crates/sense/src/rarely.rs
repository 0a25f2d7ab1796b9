//! Sources that a sensor reads less often than it is polled.

use std::time::Duration;

/// The time of the next read of a source.
pub(crate) struct Rarely {
    every: Duration,
    due: Duration,
}

/// Polls come a little before or after their time. A source is read up to this part of its time
/// early, so that it does not wait for one more poll.
const EARLY: u32 = 10;

impl Rarely {
    /// Returns a source that is read `every` so often, and at the first poll.
    pub(crate) const fn every(every: Duration) -> Self {
        Self { every, due: Duration::ZERO }
    }

    /// Returns true if the source is to be read at a poll at this time. It stays true until
    /// [`was_read`](Self::was_read), so that a read that failed is repeated at the next poll.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        now.saturating_add(self.every / EARLY) >= self.due
    }

    /// Notes that the source was read.
    pub(crate) fn was_read(&mut self, now: Duration) {
        self.due = now.saturating_add(self.every);
    }

    /// Changes the time between two reads, from the next read on.
    pub(crate) fn set(&mut self, every: Duration) {
        self.every = every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_at_the_poll_that_is_nearest_to_its_time() {
        let mut rarely = Rarely::every(Duration::from_secs(5));
        let polls = [1000, 2000, 3010, 3990, 5001, 5999, 7002, 10_990, 11_004, 16_100];
        let reads = polls.map(Duration::from_millis).map(|now| {
            let is_due = rarely.is_due(now);
            if is_due {
                rarely.was_read(now);
            }
            is_due
        });
        assert_eq!(
            reads,
            [true, false, false, false, false, true, false, true, false, true],
            "{polls:?}"
        );
    }

    #[test]
    fn a_read_that_failed_is_repeated() {
        let mut rarely = Rarely::every(Duration::from_secs(5));
        let second = Duration::from_secs(1);
        assert!(rarely.is_due(second) && rarely.is_due(2 * second));
        rarely.was_read(2 * second);
        assert!(!rarely.is_due(3 * second));
    }
}
