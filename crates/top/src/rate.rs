//! The growth of a counter, computed from its stored samples.
//!
//! A vertex stores a sample only when the value changes, so the time between two samples does not
//! say how fast a counter grew: if it stood still for a minute and then grew, it grew within the last
//! poll interval. [`Growth`] is a line: flat until the last poll that still found the old value,
//! rising to the sample, and flat until the time of the last poll.

use std::time::Duration;

/// The length of a gap, in intervals, from which on a poll must have happened within it.
const MISSED_POLL: f64 = 1.5;

/// The shortest time between two polls. An agent whose clock was set back names times a nanosecond apart until the clock
/// has caught up, and no rate is known for as long.
const SHORTEST_NANOS: i64 = 1_000;

/// The deviation of the time between two polls from a window, as a share of the window.
const POLLS_DEVIATE: f64 = 0.3;

/// The growth of a counter since its first known sample, as straight lines between points.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Growth {
    /// Nanoseconds, and the growth up to that time; both never fall.
    points: Vec<(i64, f64)>,
}

impl Growth {
    /// Takes samples `(nanoseconds, value)`, oldest first, the time of the last poll, and the time
    /// between two polls if it is known.
    pub(crate) fn new(samples: &[(i64, f64)], checked_at: i64, interval: Option<Duration>) -> Self {
        let interval = interval.map(|i| i.as_nanos() as f64);
        let mut points: Vec<(i64, f64)> = Vec::with_capacity(2 * samples.len() + 1);
        let mut before = None;
        for &(time, value) in samples {
            let grown = points.last().map_or(0.0, |p| p.1);
            if let Some((then, old)) = before {
                let gap = (time - then) as f64;
                if let Some(interval) = interval.filter(|i| gap > i * MISSED_POLL) {
                    points.push((time - interval as i64, grown));
                }
                // A counter that fell has started again from zero.
                points.push((time, grown + if value >= old { value - old } else { value }));
            } else {
                points.push((time, 0.0));
            }
            before = Some((time, value));
        }
        if let Some(&(time, grown)) = points.last()
            && checked_at > time
        {
            points.push((checked_at, grown));
        }
        Self { points }
    }

    /// The first and the last known time.
    pub(crate) fn span(&self) -> Option<(i64, i64)> {
        Some((self.points.first()?.0, self.points.last()?.0))
    }

    /// The growth per second over about the last `window`: from poll to poll if two are about that far
    /// apart, so that earlier growth is left out.
    pub(crate) fn lately(&self, window: Duration) -> Option<f64> {
        let (first, to) = self.span()?;
        let before = self.points.iter().rev().map(|p| p.0).find(|at| *at < to)?;
        if to - before < SHORTEST_NANOS {
            return None;
        }
        let window = window.as_nanos() as f64;
        let from = to - window as i64;
        let near = |p: &&(i64, f64)| {
            let away = (to - p.0) as f64 / window;
            (1.0 - POLLS_DEVIATE..=1.0 + POLLS_DEVIATE).contains(&away)
        };
        let poll = self.points.iter().filter(near).min_by_key(|p| (p.0 - from).abs());
        self.per_second(poll.map_or(from, |p| p.0).max(first), to)
    }

    /// The growth per second in the known part of the time from `from` to `to`.
    pub(crate) fn per_second(&self, from: i64, to: i64) -> Option<f64> {
        let (first, last) = self.span()?;
        let (from, to) = (from.max(first), to.min(last));
        if to <= from {
            return None;
        }
        Some((self.at(to) - self.at(from)) / ((to - from) as f64 / 1e9))
    }

    fn at(&self, time: i64) -> f64 {
        let next = self.points.partition_point(|p| p.0 < time);
        match (next.checked_sub(1).and_then(|i| self.points.get(i)), self.points.get(next)) {
            (Some(before), Some(after)) if after.0 > before.0 => {
                let share = (time - before.0) as f64 / (after.0 - before.0) as f64;
                before.1 + share * (after.1 - before.1)
            }
            (_, Some(after)) => after.1,
            (before, None) => before.map_or(0.0, |p| p.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(samples: &[(f64, f64)], checked_at: f64, interval: Option<f64>) -> Option<f64> {
        let ns = |s: f64| (s * 1e9) as i64;
        let samples: Vec<_> = samples.iter().map(|&(t, v)| (ns(t), v)).collect();
        let growth = Growth::new(&samples, ns(checked_at), interval.map(Duration::from_secs_f64));
        growth.lately(Duration::from_secs(1)).map(|r| r.round())
    }

    #[test]
    fn no_rate_is_known_while_an_agent_waits_for_a_clock_that_was_set_back() {
        let second = 1_000_000_000;
        let lately = |samples: &[(i64, f64)], checked_at| {
            Growth::new(samples, checked_at, None).lately(Duration::from_secs(1))
        };
        let before = [(0, 0.0), (second, 5.0)];
        assert_eq!(lately(&before, second), Some(5.0));
        let waits = [before[0], before[1], (second + 1, 10.0), (second + 2, 15.0)];
        assert_eq!(lately(&waits, second + 2), None);
        assert_eq!(lately(&waits[1..], second + 3), None);
        let caught_up = [waits[3], (2 * second, 20.0)];
        assert!(lately(&caught_up, 2 * second).is_some());
    }

    #[test]
    fn rates_of_the_last_second() {
        // A steady counter; polls that came a little late; nothing known yet.
        assert_eq!(rate(&[(1.0, 0.0), (2.0, 10.0), (3.0, 20.0)], 3.0, Some(1.0)), Some(10.0));
        assert_eq!(rate(&[(1.0, 0.0), (2.0, 10.0), (3.25, 20.0)], 3.25, Some(1.0)), Some(8.0));
        assert_eq!(rate(&[(1.0, 7.0)], 1.0, Some(1.0)), None);
        assert_eq!(rate(&[], 1.0, Some(1.0)), None);
        // It stood still: since the start, lately, and until just now.
        assert_eq!(rate(&[(1.0, 7.0)], 5.0, Some(1.0)), Some(0.0));
        assert_eq!(rate(&[(1.0, 0.0), (2.0, 10.0)], 9.0, Some(1.0)), Some(0.0));
        assert_eq!(rate(&[(1.0, 0.0), (60.0, 10.0)], 60.0, Some(1.0)), Some(10.0));
        // A burst before the last second is left out.
        assert_eq!(rate(&[(1.0, 0.0), (2.01, 1e6), (3.0, 1e6 + 5.0)], 3.0, Some(1.0)), Some(5.0));
        // Without a known interval the growth may have happened at any time in between.
        assert_eq!(rate(&[(1.0, 0.0), (11.0, 100.0)], 11.0, None), Some(10.0));
        // It started again from zero.
        assert_eq!(rate(&[(1.0, 50.0), (2.0, 3.0)], 2.0, Some(1.0)), Some(3.0));
    }

    #[test]
    fn odd_times_give_no_odd_rates() {
        let growth = Growth::new(&[(5, 1.0), (5, 2.0)], 5, None);
        assert_eq!(growth.per_second(0, 10), None);
        assert_eq!(growth.per_second(10, 0), None);
    }
}
