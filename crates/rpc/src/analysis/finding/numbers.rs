//! Statistics that several rules share.

use crate::analysis::blocks::Estimate;

/// Number of slices of a run from which the spread of a prediction comes.
pub(super) const SLICES: usize = 5;

/// Student's quantile for a 95 % interval of the mean of five.
const STUDENT: f64 = 2.776;

/// The share of a predicted gain that its model may be wrong by, beside chance: messages and work are taken as they
/// were, though they change a little with the load.
const MODEL_ERROR: f64 = 0.1;

/// Returns a predicted gain with its interval, from the gains of slices of the run.
pub(super) fn predicted(value: f64, slices: &[f64]) -> Estimate {
    let value = value.clamp(0.0, 1.0);
    let finite: Vec<f64> = slices.iter().copied().filter(|gain| gain.is_finite()).collect();
    let count = finite.len() as f64;
    let mean = finite.iter().sum::<f64>() / count.max(1.0);
    let variance =
        finite.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    let spread = if count > 1.0 { STUDENT * (variance / count).sqrt() } else { 0.5 * value };
    let wide = spread + MODEL_ERROR * value;
    Estimate { value, low: (value - wide).max(0.0), high: (value + wide).min(1.0) }
}

/// The line through points by least squares: slope, value at zero, correlation. `None` for fewer than three points, or
/// without spread.
pub(super) fn line(points: &[(f64, f64)]) -> Option<(f64, f64, f64)> {
    let count = points.len() as f64;
    if points.len() < 3 {
        return None;
    }
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    let (sxx, syy) = (sum(&|p| (p.0 - mx).powi(2)), sum(&|p| (p.1 - my).powi(2)));
    let sxy = sum(&|p| (p.0 - mx) * (p.1 - my));
    if sxx <= 0.0 || syy <= 0.0 {
        return None;
    }
    let slope = sxy / sxx;
    Some((slope, my - slope * mx, sxy / (sxx * syy).sqrt()))
}

/// The median; `None` without values.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_have_an_interval_within_0_and_1() {
        let gain = predicted(0.5, &[0.5, 0.52, 0.48, 0.5, 0.5]);
        assert!(gain.low > 0.4 && gain.high < 0.6 && gain.value == 0.5);
        assert_eq!(predicted(2.0, &[]).high, 1.0);
        assert_eq!(predicted(-1.0, &[f64::NAN]).low, 0.0);
    }

    #[test]
    fn a_line_is_found_and_a_point_is_not_one() {
        let (slope, zero, r) = line(&[(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)]).unwrap();
        assert!((slope - 2.0).abs() < 1e-9 && (zero - 3.0).abs() < 1e-9 && r > 0.999);
        assert!(line(&[(1.0, 5.0); 4]).is_none() && line(&[]).is_none());
    }
}
