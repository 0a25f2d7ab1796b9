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
}

/// Quantiles 0.975 of Student's distribution for 1 to 10 degrees of freedom.
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

/// The mean of `rounds` with the interval of Student's distribution. Values that are not finite are left out; with fewer
/// than two rounds the interval is unbounded.
#[must_use]
pub fn estimate(rounds: &[f64]) -> Estimate {
    let rounds: Vec<f64> = rounds.iter().copied().filter(|value| value.is_finite()).collect();
    let count = rounds.len() as f64;
    if rounds.is_empty() {
        let unknown = f64::NAN;
        return Estimate { mean: unknown, low: unknown, high: unknown };
    }
    let mean = rounds.iter().sum::<f64>() / count;
    let squares: f64 = rounds.iter().map(|value| (value - mean).powi(2)).sum();
    let half = match rounds.len() {
        1 => f64::INFINITY,
        n => student(n - 1) * (squares / (count - 1.0) / count).sqrt(),
    };
    Estimate { mean, low: mean - half, high: mean + half }
}

/// A median with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Median {
    /// The median of the rounds.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// The median of `rounds`, with the interval between two of its order statistics: no distribution is assumed, and rounds
/// that another program disturbed count as any other. Values that are not finite are left out.
#[must_use]
pub fn median(rounds: &[f64]) -> Median {
    let mut rounds: Vec<f64> = rounds.iter().copied().filter(|value| value.is_finite()).collect();
    rounds.sort_by(f64::total_cmp);
    let Some(last) = rounds.len().checked_sub(1) else {
        return Median { median: f64::NAN, low: f64::NAN, high: f64::NAN };
    };
    // The number of rounds below the true median is binomial; its normal approximation gives the two ranks.
    let half = 1.96 * (rounds.len() as f64).sqrt() / 2.0;
    let middle = rounds.len() as f64 / 2.0;
    let low = (middle - half).floor().max(0.0) as usize;
    let high = ((middle + half).ceil() as usize).min(last);
    Median {
        median: (rounds[last / 2] + rounds[rounds.len() / 2]) / 2.0,
        low: rounds[low.min(last)],
        high: rounds[high],
    }
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
        assert!((found.mean - 3.0).abs() < 1e-9);
        assert!((found.high - 4.963).abs() < 0.001, "{found:?}");
        assert!((found.low - 1.037).abs() < 0.001, "{found:?}");
        assert!((student(30) - 2.042).abs() < 0.02);
        assert!(estimate(&[1.0]).high.is_infinite());
        assert!(estimate(&[]).mean.is_nan());
    }

    #[test]
    fn one_disturbed_round_does_not_move_the_median() {
        let mut rounds: Vec<f64> = (1..=99).map(f64::from).collect();
        let calm = median(&rounds);
        assert_eq!((calm.median, calm.low, calm.high), (50.0, 40.0, 61.0));
        rounds[98] = 1e9;
        assert_eq!(median(&rounds), calm);
        assert!(median(&[]).median.is_nan());
        assert_eq!(median(&[7.0]), Median { median: 7.0, low: 7.0, high: 7.0 });
    }
}
