//! Robust statistics of few numbers, and the bounds that several rules share.

/// The shortest job that is judged by its use of time, in seconds. Starting and loading dominates a shorter one.
pub(super) const MIN_WALL_SECONDS: f64 = 2.0;

/// The factor by which the median absolute deviation of a normal distribution is smaller than its standard deviation.
const MAD_TO_SIGMA: f64 = 1.4826;

/// The greatest amount that is believed: an exabyte, or the age of the universe in seconds. Products and sums of such
/// amounts stay finite.
const MAX_AMOUNT: f64 = 1e18;

/// Returns true if a value can be an amount of something that a job used or requested.
pub(super) fn is_amount(value: f64) -> bool {
    (0.0..=MAX_AMOUNT).contains(&value)
}

/// Returns the median of the finite values; `None` without one.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    all.sort_by(f64::total_cmp);
    let middle = all.len() / 2;
    let upper = *all.get(middle)?;
    match all.len() % 2 {
        // Halves first: a sum may be too large.
        0 => Some(all[middle - 1] / 2.0 + upper / 2.0),
        _ => Some(upper),
    }
}

/// Returns the median and a robust standard deviation: that of the absolute deviations from the median.
pub(super) fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let middle = median(values.iter().copied())?;
    let off = median(values.iter().map(|value| (value - middle).abs()))?;
    Some((middle, MAD_TO_SIGMA * off))
}

/// Returns the mean of the values; `None` without one.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    (!values.is_empty()).then(|| values.iter().map(|value| value / count).sum())
}

/// Returns the slope of the line through points that has the median of the slopes of all pairs (Theil, 1950; Sen, 1968).
pub(super) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let pairs = points
        .iter()
        .enumerate()
        .flat_map(|(at, a)| points[at + 1..].iter().map(move |b| (b.1 - a.1) / (b.0 - a.0)));
    median(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_withstand_outliers() {
        assert_eq!(median([3.0, f64::NAN, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([f64::MAX, f64::MAX]), Some(f64::MAX));
        assert_eq!(median([]), None);
        assert_eq!(spread(&[1.0, 2.0, 3.0, 4.0, 1e9]), Some((3.0, MAD_TO_SIGMA)));
        assert_eq!(mean(&[1.0, 3.0]), Some(2.0));
        let line: Vec<(f64, f64)> = (0..9).map(|at| (f64::from(at), 2.0 * f64::from(at))).collect();
        let bent: Vec<(f64, f64)> = line.iter().copied().chain([(9.0, 1e9)]).collect();
        assert_eq!((slope(&line), slope(&bent)), (Some(2.0), Some(2.0)));
        assert_eq!(slope(&[(1.0, 1.0)]), None);
    }
}
