//! Percentiles, medians, and the cost of reading the clock.

use std::collections::BTreeMap;
use std::time::Instant;

use hdrhistogram::Histogram;

/// Significant digits of a percentile. Below 2,048 ns each nanosecond is distinguished.
const DIGITS: u8 = 3;

/// The longest time that is distinguished from longer ones, in nanoseconds: all measured times are
/// shorter than a minute.
const LONGEST: u64 = 60_000_000_000;

/// Times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_max(LONGEST, DIGITS);
        Self(histogram.unwrap_or_else(|_| unreachable!("{LONGEST} and {DIGITS} are allowed")))
    }

    pub(crate) fn record(&mut self, nanos: u64) {
        self.0.saturating_record(nanos);
    }

    /// Adds the times of another one.
    pub(crate) fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// A percentile in nanoseconds; 0 without a recorded time.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }
}

/// The cost of a pair of clock readings, by which every timing is too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    /// The resolution of the clock: some machines round it to ten nanoseconds.
    pub(crate) step: u64,
}

impl Timer {
    pub(crate) fn measure() -> Self {
        /// Number of pairs, enough for a stable median and done in milliseconds.
        const PAIRS: u32 = 200_000;
        let (mut empty, mut often) = (Latencies::new(), BTreeMap::new());
        for _ in 0..PAIRS {
            let start = Instant::now();
            let nanos = nanos_since(start);
            empty.record(nanos);
            *often.entry(nanos).or_insert(0) += 1;
        }
        // A rare time was an interruption, and is not a step of the clock.
        let usual: Vec<u64> =
            often.iter().filter(|(_, n)| **n > PAIRS / 100).map(|(t, _)| *t).collect();
        let step = usual.windows(2).map(|two| two[1] - two[0]).min();
        let (p50, p99) = (empty.percentile(50.0) as u64, empty.percentile(99.0) as u64);
        Self { p50, p99, step: step.unwrap_or(p50) }
    }
}

/// Nanoseconds since `start`.
pub(crate) fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The middle value, or the mean of the middle two; 0 for an empty list.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The probability that the interval does not hold the true median: once in twenty times.
const RISK: f64 = 0.05;

/// Two of the values, between which the true median lies with a probability of at least 1 - `RISK`, for
/// any distribution: the number of values below the median has the distribution of heads in as many
/// throws of a coin (the sign test's interval; Conover, Practical Nonparametric Statistics, 3.2).
///
/// `None` if there are too few values for an interval.
pub(crate) fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    // Number of values that can be left out on each side.
    let mut outside = None;
    let (mut probability, mut below) = (0.5f64.powi(i32::try_from(n).ok()?), 0.0);
    for heads in 0..n / 2 {
        below += probability;
        if below > RISK / 2.0 {
            break;
        }
        outside = Some(heads);
        probability *= (n - heads) as f64 / (heads + 1) as f64;
    }
    outside.map(|outside| (sorted[outside], sorted[n - 1 - outside]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_every_size_are_distinguished() {
        for nanos in [0, 7, 2_000, 3_000_000, 40_000_000_000] {
            let mut latencies = Latencies::new();
            latencies.record(nanos);
            let found = latencies.percentile(50.0);
            assert!((found - nanos as f64).abs() <= nanos as f64 / 1000.0, "{nanos}: {found}");
        }
    }

    /// The ranks of the interval's ends, counted from 1.
    fn ranks(n: u32) -> Option<(u32, u32)> {
        let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
        interval(&values).map(|(low, high)| (low as u32, high as u32))
    }

    #[test]
    fn ranks_agree_with_published_tables() {
        // From a table of the sign test, two-sided, 5 %.
        for (n, expected) in [
            (0, None),
            (5, None),
            (6, Some((1, 6))),
            (8, Some((1, 8))),
            (9, Some((2, 8))),
            (10, Some((2, 9))),
            (12, Some((3, 10))),
            (20, Some((6, 15))),
        ] {
            assert_eq!(ranks(n), expected, "{n} values");
        }
    }

    #[test]
    fn medians() {
        for (values, expected) in
            [(&[][..], 0.0), (&[3.0], 3.0), (&[9.0, 1.0], 5.0), (&[9.0, 1.0, 2.0], 2.0)]
        {
            assert!((median(values) - expected).abs() < 1e-12, "{values:?}");
        }
    }
}
