//! Pairs of runs without the agent and with it, and their statistics.

use crate::stats::median;

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

/// The least number of pairs that gives an interval.
pub(super) const LEAST: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::interval;

    #[test]
    fn the_least_number_of_pairs_has_an_interval() {
        let values: Vec<f64> = (0..LEAST).map(|n| n as f64).collect();
        assert!(interval(&values).is_some() && interval(&values[1..]).is_none());
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
