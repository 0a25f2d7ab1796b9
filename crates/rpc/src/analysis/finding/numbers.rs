//! Statistics that several rules share.

use crate::analysis::blocks::Estimate;

/// The share of a predicted gain that its model may be wrong by, beside chance: messages and work are taken as they
/// were, though they change a little with the load.
const MODEL_ERROR: f64 = 0.1;

/// Returns a predicted gain with the error of its model added to its interval, within 0 and 1.
pub(super) fn widened(gain: Estimate) -> Estimate {
    let wide = MODEL_ERROR * gain.value.abs();
    let clamp = |value: f64| value.clamp(0.0, 1.0);
    Estimate {
        value: clamp(gain.value),
        low: clamp(gain.low - wide),
        high: clamp(gain.high + wide),
    }
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
        let gain = widened(Estimate { value: 0.5, low: 0.45, high: 0.98 });
        assert_eq!((gain.value, gain.low, gain.high), (0.5, 0.4, 1.0));
        assert_eq!(widened(Estimate::exact(-1.0)), Estimate::exact(0.0));
    }

    #[test]
    fn a_line_is_found_and_a_point_is_not_one() {
        let (slope, zero, r) = line(&[(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)]).unwrap();
        assert!((slope - 2.0).abs() < 1e-9 && (zero - 3.0).abs() < 1e-9 && r > 0.999);
        assert!(line(&[(1.0, 5.0); 4]).is_none() && line(&[]).is_none());
    }
}
