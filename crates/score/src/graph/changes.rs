use std::time::Duration;

use skopos_model::Timestamp;

use crate::cell::set_back;

/// The window over which changes are counted. It is long enough to hold two polls of a sensor with
/// the longest interval of the paper, 25 seconds.
const WINDOW: Duration = Duration::from_secs(60);

/// Counts the changes of a vertex in this window and the one before, so that counting costs an
/// addition and a comparison.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChangeCounter {
    total: u64,
    started: Timestamp,
    now: u32,
    before: Option<u32>,
}

impl ChangeCounter {
    #[inline]
    pub(super) fn count(&mut self, time: Timestamp) {
        if self.total == 0 {
            self.started = time;
        }
        let elapsed = time.since(self.started);
        if elapsed >= WINDOW {
            // Changes more than a window ago say nothing about the present rate.
            self.before = Some(if elapsed < 2 * WINDOW { self.now } else { 0 });
            self.now = 0;
            self.started = match elapsed < 2 * WINDOW {
                true => self.started.saturating_add(WINDOW),
                false => time,
            };
        }
        self.total += 1;
        self.now = self.now.saturating_add(1);
    }

    /// Moves the window back by `by`.
    pub(super) fn set_back(&mut self, by: Duration) {
        set_back(&mut self.started, by);
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the changes per second over about the last minute, or over the time since the first
    /// change if that is shorter. `None` in the first second.
    pub(super) fn per_second(&self, now: Timestamp) -> Option<f64> {
        let elapsed = now.since(self.started);
        let window = WINDOW.as_secs_f64();
        let seconds = elapsed.as_secs_f64();
        if elapsed >= 2 * WINDOW {
            Some(0.0)
        } else if elapsed >= WINDOW {
            // `now` has become the window before; only its last part is less than a window old.
            Some(f64::from(self.now) * (2.0 - seconds / window) / window)
        } else if let Some(before) = self.before {
            Some((f64::from(before) * (1.0 - seconds / window) + f64::from(self.now)) / window)
        } else {
            // The first change started the clock, so it ends no interval.
            (seconds >= 1.0).then(|| f64::from(self.now.saturating_sub(1)) / seconds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_nanos((seconds * 1e9) as i64)
    }

    #[test]
    fn a_steady_rate_is_found_in_every_part_of_the_window() {
        for every in [0.1, 1.0, 7.0] {
            let mut changes = ChangeCounter::default();
            let mut time = 1e6;
            for step in 0..3000 {
                changes.count(at(time));
                let rate = changes.per_second(at(time));
                if step >= 20 {
                    let rate = rate.expect("more than a second");
                    assert!((rate * every - 1.0).abs() < 0.15, "{rate} where it is 1/{every}");
                }
                time += every;
            }
            assert_eq!(changes.total(), 3000);
        }
    }

    #[test]
    fn the_rate_fades_to_zero_after_the_last_change() {
        let mut changes = ChangeCounter::default();
        for second in 0..100 {
            changes.count(at(f64::from(second)));
        }
        for (seconds, most) in [(130.0, 0.6), (179.0, 0.1), (300.0, 0.0)] {
            let rate = changes.per_second(at(seconds)).expect("more than a second");
            assert!(rate <= most, "{rate} after {seconds} s");
        }
        changes.count(at(1000.0));
        assert!(changes.per_second(at(1000.0)).expect("long ago") < 0.02);
    }
}
