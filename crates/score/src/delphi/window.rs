/// The number of samples in a prediction, as in the paper.
pub(crate) const WINDOW: usize = 5;

/// The number of differences between them.
pub(crate) const DIFFERENCES: usize = WINDOW - 1;

/// The share of a step within which samples count as evenly spaced. Timers are late by microseconds
/// to milliseconds; an interpolation for that would only blur the measurement.
const JITTER: f64 = 1.0 / 32.0;

/// The last five samples, oldest first; times rise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    times: [i64; WINDOW],
    values: [f64; WINDOW],
    len: usize,
}

/// Four differences at even steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Grid {
    /// The length of a step in nanoseconds; positive.
    pub(crate) step: f64,
    /// The mean size of the differences, by which they are divided; 0 if the value did not move.
    pub(crate) scale: f64,
    /// The differences, oldest first; all 0 if the value did not move.
    pub(crate) normalised: [f32; DIFFERENCES],
}

impl Window {
    /// Adds a sample, which must be later than the latest, and drops the oldest.
    pub(crate) fn push(&mut self, time: i64, value: f64) {
        if self.len == WINDOW {
            self.times.copy_within(1.., 0);
            self.values.copy_within(1.., 0);
            self.len -= 1;
        }
        self.times[self.len] = time;
        self.values[self.len] = value;
        self.len += 1;
    }

    /// Replaces the value of the latest sample.
    pub(crate) fn correct(&mut self, value: f64) {
        if let Some(last) = self.len.checked_sub(1) {
            self.values[last] = value;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the latest sample.
    #[inline]
    pub(crate) fn latest(&self) -> Option<(i64, f64)> {
        let last = self.len.checked_sub(1)?;
        Some((self.times[last], self.values[last]))
    }

    /// Returns the change per nanosecond between the last two samples; 0 for fewer.
    #[inline]
    pub(crate) fn slope(&self) -> f64 {
        let Some(before) = self.len.checked_sub(2) else { return 0.0 };
        let slope = (self.values[before + 1] - self.values[before])
            / nanos(self.times[before], self.times[before + 1]);
        // The difference of two doubles may exceed the largest double.
        if slope.is_finite() { slope } else { 0.0 }
    }

    /// Returns the usual time between two samples in nanoseconds: the median in the window (the
    /// longer of the two in the middle), or the last time if it is longer, because a source that is
    /// polled less and less often continues so. `None` for fewer than two samples.
    pub(crate) fn usual_gap(&self) -> Option<f64> {
        let gaps = self.len.checked_sub(1).filter(|gaps| *gaps > 0)?;
        let mut sorted = [f64::INFINITY; DIFFERENCES];
        for (gap, times) in sorted.iter_mut().zip(self.times[..self.len].windows(2)) {
            *gap = nanos(times[0], times[1]);
        }
        let last = sorted[gaps - 1];
        sorted.sort_unstable_by(f64::total_cmp);
        Some(sorted[gaps / 2].max(last))
    }

    /// Returns the window at even steps; `None` until it is full.
    #[inline]
    pub(crate) fn grid(&self) -> Option<Grid> {
        if self.len < WINDOW {
            return None;
        }
        let step = nanos(self.times[0], self.times[WINDOW - 1]) / DIFFERENCES as f64;
        let offset = |i: usize| nanos(self.times[0], self.times[i]);
        let even = (1..DIFFERENCES).all(|i| (offset(i) - step * i as f64).abs() <= step * JITTER);
        let values = if even { self.values } else { self.interpolated(step) };
        let mut differences = [0.0; DIFFERENCES];
        for (i, difference) in differences.iter_mut().enumerate() {
            *difference = values[i + 1] - values[i];
        }
        let (scale, normalised) = normalise(differences);
        Some(Grid { step, scale, normalised })
    }

    /// Returns the values at even steps, on the lines between the samples.
    fn interpolated(&self, step: f64) -> [f64; WINDOW] {
        let mut values = self.values;
        let mut segment = 0;
        for (k, value) in values.iter_mut().enumerate().take(DIFFERENCES).skip(1) {
            let at = step * k as f64;
            let end = |segment: usize| nanos(self.times[0], self.times[segment + 1]);
            while segment + 1 < DIFFERENCES && end(segment) < at {
                segment += 1;
            }
            let (from, to) = (self.values[segment], self.values[segment + 1]);
            let length = nanos(self.times[segment], self.times[segment + 1]);
            *value = to - (to - from) * ((end(segment) - at) / length);
        }
        values
    }
}

/// Returns the mean size of the differences, and the differences divided by it. All are zero if the
/// value did not move, or if the differences are too large or too small to be divided.
#[inline]
pub(crate) fn normalise(differences: [f64; DIFFERENCES]) -> (f64, [f32; DIFFERENCES]) {
    let scale = differences.iter().map(|d| d.abs()).sum::<f64>() / DIFFERENCES as f64;
    if scale.is_normal() {
        (scale, differences.map(|d| (d / scale) as f32))
    } else {
        (0.0, [0.0; DIFFERENCES])
    }
}

/// Returns the nanoseconds from one time to a later one. The difference of two `i64` fits a `u64`
/// even where it does not fit an `i64`.
#[inline]
pub(crate) fn nanos(earlier: i64, later: i64) -> f64 {
    later.wrapping_sub(earlier).cast_unsigned() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(samples: &[(i64, f64)]) -> Window {
        let mut window = Window::default();
        for (time, value) in samples {
            window.push(*time, *value);
        }
        window
    }

    fn check(samples: &[(i64, f64)], step: f64, scale: f64, normalised: [f32; DIFFERENCES]) {
        let grid = window(samples).grid();
        assert_eq!(grid, Some(Grid { step, scale, normalised }), "{samples:?}");
    }

    #[test]
    fn differences_at_even_steps() {
        check(&[(0, 5.0), (10, 5.0), (20, 5.0), (30, 5.0), (40, 5.0)], 10.0, 0.0, [0.0; 4]);
        check(
            &[(0, 0.0), (10, 2.0), (20, 4.0), (30, 4.0), (40, 0.0)],
            10.0,
            2.0,
            [1., 1., 0., -2.],
        );
        // The oldest sample is dropped.
        check(
            &[(-10, 99.0), (0, 0.0), (10, 2.0), (20, 4.0), (30, 4.0), (40, 0.0)],
            10.0,
            2.0,
            [1.0, 1.0, 0.0, -2.0],
        );
        // A little late counts as even.
        check(&[(0, 0.0), (100, 1.0), (203, 2.0), (299, 3.0), (400, 4.0)], 100.0, 1.0, [1.0; 4]);
    }

    #[test]
    fn the_usual_gap_is_neither_a_pause_nor_a_second_look() {
        let usual = |times: &[i64]| {
            window(&times.iter().map(|time| (*time, 0.0)).collect::<Vec<_>>()).usual_gap()
        };
        assert_eq!(usual(&[]), None);
        assert_eq!(usual(&[7]), None);
        assert_eq!(usual(&[0, 10]), Some(10.0));
        assert_eq!(usual(&[0, 10, 13]), Some(10.0));
        assert_eq!(usual(&[0, 10, 20, 30, 40]), Some(10.0));
        assert_eq!(usual(&[0, 1000, 1010, 1020, 1030]), Some(10.0));
        assert_eq!(usual(&[0, 10, 20, 30, 31]), Some(10.0));
        // The source is polled less and less often.
        assert_eq!(usual(&[0, 1, 3, 7, 15]), Some(8.0));
    }

    #[test]
    fn uneven_samples_are_interpolated() {
        // A line stays a line at any times of sampling.
        check(&[(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0), (40, 40.0)], 10.0, 10.0, [1.0; 4]);
        // Flat up to 36, then up by 4: 30 lies on the flat part, and the last step holds all of the
        // rise.
        check(&[(0, 0.0), (34, 0.0), (35, 0.0), (36, 0.0), (40, 4.0)], 10.0, 1.0, [0., 0., 0., 4.]);
    }

    #[test]
    fn extreme_times_and_values_cause_no_division_by_zero() {
        check(
            &[(i64::MIN, 0.0), (-1, f64::MAX), (0, -f64::MAX), (1, 0.0), (i64::MAX, 1.0)],
            u64::MAX as f64 / 4.0,
            0.0,
            [0.0; 4],
        );
        assert!(window(&[(0, -f64::MAX), (1, f64::MAX)]).slope().abs() < 1.0);
        assert_eq!(window(&[(0, 1.0), (4, 3.0)]).slope(), 0.5);
        assert_eq!(window(&[(0, 1.0)]).slope(), 0.0);
    }
}
