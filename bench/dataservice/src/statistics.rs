//! Medians of rounds with their intervals.

use serde::Serialize;

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

#[cfg(test)]
mod tests {
    use super::*;

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
