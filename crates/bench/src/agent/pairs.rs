//! Pairs of runs without the agent and with it, and their statistics.

use crate::stats::median;

/// The probability that the interval does not hold the true median: once in twenty times.
const RISK: f64 = 0.05;

/// Times of runs in seconds; two times with the same index are a pair.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pub(super) without: Vec<f64>,
    pub(super) with: Vec<f64>,
}

impl Pairs {
    /// The slowdown of each pair, in per cent.
    pub(super) fn slowdowns(&self) -> Vec<f64> {
        self.without
            .iter()
            .zip(&self.with)
            .map(|(without, with)| percent(*without, *with))
            .collect()
    }

    /// The median difference between a run without the agent and the next such run, in per cent; `None`
    /// for fewer than two runs.
    pub(super) fn noise(&self) -> Option<f64> {
        let apart = |two: &[f64]| percent(two[0], two[1]).abs();
        let apart: Vec<f64> = self.without.windows(2).map(apart).collect();
        (!apart.is_empty()).then(|| median(&apart))
    }
}

fn percent(before: f64, after: f64) -> f64 {
    (after / before - 1.0) * 100.0
}

/// Two of the values, between which the true median lies with a probability of at least 1 - `RISK`, for
/// any distribution: the number of values below the median has the distribution of heads in as many
/// throws of a coin (the sign test's interval; Conover, Practical Nonparametric Statistics, 3.2).
///
/// `None` if there are too few values for an interval.
pub(super) fn interval(values: &[f64]) -> Option<(f64, f64)> {
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

/// The least number of pairs that gives an interval.
pub(super) const LEAST: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(ranks(LEAST as u32).is_some() && ranks(LEAST as u32 - 1).is_none());
    }

    #[test]
    fn slowdown_and_noise_in_per_cent() {
        let pairs = Pairs { without: vec![10.0, 8.0, 10.0], with: vec![11.0, 8.0, 9.0] };
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        for (found, expected) in pairs.slowdowns().into_iter().zip([10.0, 0.0, -10.0]) {
            near(found, expected);
        }
        near(pairs.noise().expect("three runs"), 22.5);
        assert_eq!(Pairs::default().noise(), None);
    }
}
