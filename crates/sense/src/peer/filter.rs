//! The clock filter: among the last few answers, the one that shows the peer's clock most exactly
//! (RFC 5905, section 10, with its simplest rule).
//!
//! The probe was sent at `t1` and its answer received at `t4` by our clock. By the peer's clock,
//! the probe was received at `t2` and its answer sent at `t3`. Then
//!
//! ```text
//! rtt    = (t4 - t1) - (t3 - t2)
//! offset = ((t2 - t1) + (t3 - t4)) / 2
//! ```
//!
//! Neither way took less than no time, so the true offset differs from it by at most `rtt / 2`,
//! however the round trip was split between the ways. Clocks drift, so an older answer is less
//! exact.

use std::time::Duration;

/// The number of answers that are kept: 8 s by default. In that time a queue that was full has most
/// often been empty for a moment.
pub(crate) const WINDOW: usize = 16;

/// The fastest drift between two clocks: twice what RFC 5905 (section 7.3, PHI) allows for one.
const DRIFT_RATIO: f64 = 30e-6;

/// The result of one answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Answer {
    /// The time of its arrival, by our clock that never steps.
    pub(crate) arrived: Duration,
    pub(crate) rtt_nanos: i64,
    /// The peer's system time minus our clock that never steps. A step of our system clock cannot
    /// spoil it.
    pub(crate) ahead_nanos: i64,
}

impl Answer {
    /// Returns half of the round trip plus the drift since, in nanoseconds.
    fn bound_nanos(&self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.arrived).as_nanos() as f64;
        self.rtt_nanos as f64 / 2.0 + DRIFT_RATIO * age
    }

    /// Returns true if both answers can be right about a clock that was not set in between.
    fn agrees_with(&self, newer: &Self) -> bool {
        let apart = (self.ahead_nanos - newer.ahead_nanos).abs() as f64;
        apart <= self.bound_nanos(newer.arrived) + newer.bound_nanos(newer.arrived)
    }
}

/// The best of the last answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Best {
    /// The peer's system time minus our clock that never steps.
    pub(crate) ahead_nanos: i64,
    pub(crate) bound_nanos: f64,
    pub(crate) rtt_nanos_min: i64,
}

/// The last answers of one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    answers: [Option<Answer>; WINDOW],
    next: usize,
}

impl Filter {
    /// Adds an answer. Older answers that contradict it are dropped, because a clock was set.
    pub(crate) fn add(&mut self, answer: Answer) {
        for older in &mut self.answers {
            if older.is_some_and(|older| !older.agrees_with(&answer)) {
                *older = None;
            }
        }
        self.answers[self.next] = Some(answer);
        self.next = (self.next + 1) % WINDOW;
    }

    /// Returns the best answer as of `now`; `None` before the first answer.
    pub(crate) fn best(&self, now: Duration) -> Option<Best> {
        let answers = || self.answers.iter().flatten();
        let least = answers().min_by(|a, b| a.bound_nanos(now).total_cmp(&b.bound_nanos(now)))?;
        Some(Best {
            ahead_nanos: least.ahead_nanos,
            bound_nanos: least.bound_nanos(now),
            rtt_nanos_min: answers().map(|a| a.rtt_nanos).min()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(second: u64, rtt_nanos: i64, ahead_nanos: i64) -> Answer {
        Answer { arrived: Duration::from_secs(second), rtt_nanos, ahead_nanos }
    }

    #[test]
    fn the_answer_with_the_smallest_bound_counts() {
        let mut filter = Filter::default();
        assert_eq!(filter.best(Duration::ZERO), None);
        filter.add(answer(1, 400_000, 1_000));
        filter.add(answer(2, 100_000, 2_000));
        filter.add(answer(3, 300_000, 3_000));
        let best = filter.best(Duration::from_secs(4)).expect("three answers");
        assert_eq!((best.ahead_nanos, best.rtt_nanos_min), (2_000, 100_000));
        assert_eq!(best.bound_nanos, 50_000.0 + 2.0 * 30_000.0);
    }

    #[test]
    fn the_bound_grows_until_a_newer_answer_is_better() {
        let mut filter = Filter::default();
        filter.add(answer(1, 100_000, 1_000));
        filter.add(answer(11, 200_000, 2_000));
        let ahead = |second| filter.best(Duration::from_secs(second)).map(|b| b.ahead_nanos);
        assert_eq!(ahead(11), Some(2_000));
        let mut filter = Filter::default();
        filter.add(answer(1, 100_000, 1_000));
        filter.add(answer(2, 200_000, 2_000));
        assert_eq!(filter.best(Duration::from_secs(2)).map(|b| b.ahead_nanos), Some(1_000));
    }

    #[test]
    fn a_clock_that_was_set_counts_at_once() {
        let mut filter = Filter::default();
        filter.add(answer(1, 1_000, 0));
        filter.add(answer(2, 500_000, 3_000_000_000));
        let best = filter.best(Duration::from_secs(2)).expect("an answer");
        assert_eq!((best.ahead_nanos, best.rtt_nanos_min), (3_000_000_000, 500_000));
    }

    #[test]
    fn old_answers_are_dropped() {
        let mut filter = Filter::default();
        filter.add(answer(0, 1_000, 0));
        for second in 1..=WINDOW as u64 {
            filter.add(answer(second, 9_000_000, 0));
        }
        let best = filter.best(Duration::from_secs(20)).expect("answers");
        assert_eq!(best.rtt_nanos_min, 9_000_000);
    }
}
