//! The agent's two clocks, read together: the system time, which can be set, and the time since boot, which
//! is monotonic.

use std::time::Duration;

use skopos_model::Timestamp;

/// The longest step back that counts as slewing: NTP slews a clock by at most 500 parts per million, 0.5 ms
/// a second.
const STEP_TOLERANCE: Duration = Duration::from_millis(100);

/// The longest time between the readings of the two clocks. A thread that is preempted between them would
/// take the pause for a step, so it reads both again.
const MAX_GAP: Duration = Duration::from_millis(10);

/// Number of attempts before the last reading is used: a machine on which every attempt is slow has worse
/// problems than a false report of a step.
const MAX_ATTEMPTS: usize = 8;

/// The readings of both clocks at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The system time.
    pub wall: Timestamp,
    /// The time since boot.
    pub monotonic: Duration,
}

impl Clock {
    /// Reads both clocks.
    pub(crate) fn now() -> Self {
        Self::read(skopos_shm::now, monotonic)
    }

    fn read(wall: impl Fn() -> Timestamp, monotonic: impl Fn() -> Duration) -> Self {
        let mut before = monotonic();
        let mut attempts = 1;
        loop {
            let now = Self { wall: wall(), monotonic: before };
            let after = monotonic();
            if after.saturating_sub(before) < MAX_GAP || attempts == MAX_ATTEMPTS {
                return now;
            }
            before = after;
            attempts += 1;
        }
    }

    /// Returns the length of the step if the system clock was set back since `self`, and sets `self` to `now`.
    pub(crate) fn stepped_back(&mut self, now: Self) -> Option<Duration> {
        let last = std::mem::replace(self, now);
        let ran = now.monotonic.saturating_sub(last.monotonic);
        let behind = last.wall.saturating_add(ran).since(now.wall);
        (behind > STEP_TOLERANCE).then_some(behind)
    }
}

/// Returns the time since boot.
pub(crate) fn monotonic() -> Duration {
    Duration::from_nanos(skopos_shm::boottime())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_nanos((seconds * 1e9) as i64)
    }

    #[test]
    fn only_a_step_back_is_reported() {
        let mut clock = Clock { wall: at(1000.0), monotonic: Duration::from_secs(10) };
        let mut look = |wall: f64, monotonic| {
            clock.stepped_back(Clock { wall: at(wall), monotonic: Duration::from_secs(monotonic) })
        };
        assert_eq!(look(1001.0, 11), None, "it runs");
        assert_eq!(look(1001.95, 12), None, "it is slewed");
        assert_eq!(look(942.95, 13), Some(Duration::from_secs(60)), "it is set back by a minute");
        assert_eq!(look(943.95, 14), None, "a step is reported once");
        assert_eq!(look(5000.0, 15), None, "a step forward keeps the order by itself");
    }

    /// `pauses` holds the time in milliseconds that passes before each reading.
    #[test]
    fn clocks_with_a_long_time_between_their_readings_are_read_again() {
        for (pauses, attempts) in [(&[0][..], 1), (&[0, 500], 2), (&[0, 500, 0, 500], 3)] {
            let (elapsed, readings) = (Cell::new(0_u64), Cell::new(0_usize));
            let tick = || {
                let pause = pauses.get(readings.get()).copied().unwrap_or(0);
                readings.set(readings.get() + 1);
                elapsed.set(elapsed.get() + pause);
                elapsed.get()
            };
            let wall = || at(1000.0 + tick() as f64 / 1e3);
            let now = Clock::read(wall, || Duration::from_millis(tick()));
            let apart = now.wall.since(at(1000.0)).abs_diff(now.monotonic);
            assert!(apart < MAX_GAP, "{pauses:?}: {apart:?}");
            assert_eq!(readings.get(), 1 + 2 * attempts, "{pauses:?}");
        }
        let reads = Cell::new(0);
        let slow = || {
            reads.set(reads.get() + 1);
            Duration::from_secs(reads.get())
        };
        let now = Clock::read(|| at(0.0), slow);
        assert_eq!(now.monotonic.as_secs(), MAX_ATTEMPTS as u64, "the attempts are bounded");
    }
}
