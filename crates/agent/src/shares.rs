//! Distributes the processor time of a tick among its polls.
//!
//! Reading the clock of a thread is a system call, and a tick has twenty polls. So that clock is read at both
//! ends of the tick, and its time is distributed in proportion to the wall time of each poll, which is read
//! without a system call. The shares add up to the processor time. A poll during which another process ran
//! has too large a share of its tick; the smoothed cost of its sensor forgets that after some ticks.

use std::time::Duration;

use crate::clock::monotonic;
use crate::probe::thread_time;

/// The clocks of a tick.
pub(crate) struct Shares {
    /// Processor time of this thread at the begin of the tick.
    started: Duration,
    poll_started: Duration,
}

impl Shares {
    /// Begins a tick on the thread that calls this.
    pub(crate) fn begin() -> Self {
        Self { started: thread_time(), poll_started: Duration::ZERO }
    }

    /// Begins a poll.
    pub(crate) fn begin_poll(&mut self) {
        self.poll_started = monotonic();
    }

    /// Returns the wall time of the poll.
    pub(crate) fn end_poll(&self) -> Duration {
        monotonic().saturating_sub(self.poll_started)
    }

    /// Ends the tick. Returns the processor time for each second of wall time of its polls, which together
    /// took `wall`.
    pub(crate) fn end(self, wall: Duration) -> f64 {
        share(thread_time().saturating_sub(self.started), wall)
    }
}

fn share(spent: Duration, wall: Duration) -> f64 {
    if wall.is_zero() { 0.0 } else { spent.as_secs_f64() / wall.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_wall_time_and_add_up_to_the_processor_time() {
        let micros = |spent: u64, polls: [u64; 3]| {
            let times = polls.map(Duration::from_micros);
            let share = share(Duration::from_micros(spent), times.iter().sum());
            times.map(|time| (time.mul_f64(share).as_secs_f64() * 1e6).round() as u64)
        };
        assert_eq!(micros(100, [10, 30, 60]), [10, 30, 60]);
        // Another process ran for as long as this one.
        assert_eq!(micros(50, [10, 30, 60]), [5, 15, 30]);
        // A clock that is too coarse for a poll.
        assert_eq!(micros(50, [0, 0, 10]), [0, 0, 50]);
        assert_eq!(micros(50, [0, 0, 0]), [0, 0, 0]);
    }

    #[test]
    fn the_shares_of_a_tick_are_its_processor_time() {
        let shares = Shares::begin();
        let started = shares.started;
        let mut polls = Vec::new();
        for _ in 0..3 {
            let mut poll = Shares { started, poll_started: Duration::ZERO };
            poll.begin_poll();
            while poll.end_poll() < Duration::from_millis(2) {
                std::hint::spin_loop();
            }
            polls.push(poll.end_poll());
        }
        let wall: Duration = polls.iter().sum();
        let spent = wall.mul_f64(shares.end(wall));
        let most = thread_time().saturating_sub(started);
        assert!(spent > Duration::ZERO, "it was busy");
        assert!(spent <= most + Duration::from_micros(1), "{spent:?}, {most:?}");
    }
}
