//! Means of rounds with their intervals.

use serde::Serialize;

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean of the rounds.
    pub mean: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The median of the rounds, which a few disturbed rounds do not move.
    pub median: f64,
}

/// Quantiles 0.975 of Student's distribution for 1 to 10 degrees of freedom.
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

/// The mean of `rounds` with the interval of Student's distribution. Values that are not finite are left out; with fewer
/// than two rounds the interval is unbounded.
#[must_use]
pub fn estimate(rounds: &[f64]) -> Estimate {
    let mut rounds: Vec<f64> = rounds.iter().copied().filter(|value| value.is_finite()).collect();
    rounds.sort_by(f64::total_cmp);
    let count = rounds.len() as f64;
    if rounds.is_empty() {
        let unknown = f64::NAN;
        return Estimate { mean: unknown, low: unknown, high: unknown, median: unknown };
    }
    let mean = rounds.iter().sum::<f64>() / count;
    let median = (rounds[(rounds.len() - 1) / 2] + rounds[rounds.len() / 2]) / 2.0;
    let squares: f64 = rounds.iter().map(|value| (value - mean).powi(2)).sum();
    let half = match rounds.len() {
        1 => f64::INFINITY,
        n => student(n - 1) * (squares / (count - 1.0) / count).sqrt(),
    };
    Estimate { mean, low: mean - half, high: mean + half, median }
}

/// The quantile 0.975 of Student's distribution; beyond ten degrees an approximation that is right to 1 %.
fn student(degrees: usize) -> f64 {
    let degrees_f = degrees as f64;
    STUDENT.get(degrees - 1).copied().unwrap_or(1.96 + 2.5 / degrees_f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_student() {
        // Mean 3, standard deviation 1.581, four degrees of freedom: 2.776 * 1.581 / sqrt(5) = 1.963.
        let found = estimate(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((found.mean - 3.0).abs() < 1e-9 && (found.median - 3.0).abs() < 1e-9);
        assert!((found.high - 4.963).abs() < 0.001, "{found:?}");
        assert!((found.low - 1.037).abs() < 0.001, "{found:?}");
        assert!((student(30) - 2.042).abs() < 0.02);
        assert!(estimate(&[1.0]).high.is_infinite());
        assert!(estimate(&[]).mean.is_nan());
    }
}
