//! From a counter's stored samples to its growth.
//!
//! A vertex stores a sample only when the value changed, so the time between two samples is no
//! measure of anything: a counter that stood still for a minute and then grew did so within the
//! last poll interval. [`Growth`] is the line through what is known: flat up to the last poll that
//! still saw the old value, rising to the sample, flat up to the time of the last look.

use std::time::Duration;

/// How much longer than the interval a gap must be before polls must have happened within it.
const MISSED_POLL: f64 = 1.5;

/// How far two looks may be from a whole window apart, as a share of it.
const LOOKS_DIFFER: f64 = 0.3;

/// The growth of a counter since its first known sample, as straight lines between points.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Growth {
    /// Nanoseconds and growth up to then; both never fall.
    points: Vec<(i64, f64)>,
}

impl Growth {
    /// From samples `(nanoseconds, value)`, oldest first, the time of the last look, and the time
    /// between two looks if that is known.
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

    /// The first and last time that anything is known about.
    pub(crate) fn span(&self) -> Option<(i64, i64)> {
        Some((self.points.first()?.0, self.points.last()?.0))
    }

    /// The growth per second over about the last `window`: from look to look where two lie that far
    /// apart, so that what grew before does not leak in.
    pub(crate) fn lately(&self, window: Duration) -> Option<f64> {
        let (first, to) = self.span()?;
        let window = window.as_nanos() as f64;
        let from = to - window as i64;
        let near = |p: &&(i64, f64)| {
            let away = (to - p.0) as f64 / window;
            (1.0 - LOOKS_DIFFER..=1.0 + LOOKS_DIFFER).contains(&away)
        };
        let look = self.points.iter().filter(near).min_by_key(|p| (p.0 - from).abs());
        self.per_second(look.map_or(from, |p| p.0).max(first), to)
    }

    /// The growth per second from `from` to `to`, as far as it is known.
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
    fn rates_of_the_last_second() {
        // A steady counter; polls that came a little late; nothing known yet.
        assert_eq!(rate(&[(1.0, 0.0), (2.0, 10.0), (3.0, 20.0)], 3.0, Some(1.0)), Some(10.0));
        assert_eq!(rate(&[(1.0, 0.0), (2.0, 10.0), (3.25, 20.0)], 3.25, Some(1.0)), Some(8.0));
        assert_eq!(rate(&[(1.0, 7.0)], 1.0, Some(1.0)), None);
        assert_eq!(rate(&[], 1.0, Some(1.0)), None);
        // It stood still: since the start, of late, and until just now.
        assert_eq!(rate(&[(1.0, 7.0)], 5.0, Some(1.0)), Some(0.0));
        assert_eq!(rate(&[(1.0, 0.0), (2.0, 10.0)], 9.0, Some(1.0)), Some(0.0));
        assert_eq!(rate(&[(1.0, 0.0), (60.0, 10.0)], 60.0, Some(1.0)), Some(10.0));
        // A burst before the last look is none of this second's.
        assert_eq!(rate(&[(1.0, 0.0), (2.01, 1e6), (3.0, 1e6 + 5.0)], 3.0, Some(1.0)), Some(5.0));
        // Without a known interval the growth may have happened any time between.
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
