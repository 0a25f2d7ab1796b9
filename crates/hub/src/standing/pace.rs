//! The pace of all standing questions: together they take a share of one core, and each an equal part of it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_model::unpoisoned;

use crate::turns::{Turn, Turns};

/// Share of one core that all evaluations together may take.
const SHARE: f64 = 0.3;

/// Pause of a question after an evaluation, in durations of that evaluation: one question takes a fifth of a core.
const REST: u32 = 4;

/// Number of evaluations at one time.
const AT_ONCE: usize = 4;

/// Number of those of one caller: a slow one does not delay all others, and the caller leaves turns to other callers.
const AT_ONCE_OF_A_CALLER: usize = 2;

/// The longest time for which others wait on account of one evaluation. A slower one is bounded by its own pause.
const LONGEST: Duration = Duration::from_millis(200);

/// The pace of all evaluations.
#[derive(Debug)]
pub(super) struct Pace {
    turns: Turns,
    debt: Mutex<Debt>,
}

/// The time that evaluations have taken beyond their share.
#[derive(Debug)]
struct Debt {
    seconds: f64,
    at: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        let debt = Debt { seconds: 0.0, at: Instant::now() };
        Self { turns: Turns::new(AT_ONCE, AT_ONCE_OF_A_CALLER), debt: Mutex::new(debt) }
    }
}

impl Pace {
    /// Waits for the turn of an evaluation.
    pub(super) async fn turn(&self, caller: &Caller) -> Turn {
        let turn = self.turns.take(caller).await;
        loop {
            let wait = unpoisoned(self.debt.lock()).wait(Instant::now());
            if wait.is_zero() {
                return turn;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Notes an evaluation that took `busy`, and returns the pause of its question.
    pub(super) fn rest(&self, busy: Duration) -> Duration {
        unpoisoned(self.debt.lock()).seconds += busy.min(LONGEST).as_secs_f64();
        busy * REST
    }
}

impl Debt {
    /// Returns the time until evaluations have taken no more than their share.
    fn wait(&mut self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.seconds = (self.seconds - since * SHARE).max(0.0);
        self.at = now;
        // A timer is a millisecond late.
        match self.seconds > 0.001 {
            true => Duration::from_secs_f64(self.seconds / SHARE),
            false => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluations_wait_until_they_have_taken_their_share() {
        let (pace, begun) = (Pace::default(), Instant::now());
        let wait = |after_ms: u64| {
            let now = begun + Duration::from_millis(1000 + after_ms);
            unpoisoned(pace.debt.lock()).wait(now).as_millis()
        };
        assert_eq!(wait(0), 0);
        assert_eq!(pace.rest(Duration::from_millis(30)), Duration::from_millis(120));
        assert_eq!([wait(0), wait(50), wait(100)], [100, 50, 0]);
        pace.rest(Duration::from_secs(10));
        assert_eq!(wait(100), 666, "a slow one delays others by no more");
    }
}
