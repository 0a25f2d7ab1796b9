/// The least spread as a share of the level: a thousandth of it is neither noise nor news.
const LEAST_RATIO: f64 = 1e-3;

/// The least spread for levels near zero.
const LEAST: f64 = 1e-9;

/// Returns the least spread of values near `level` under a rule with `min_spread`. It keeps a
/// constant series from being unusual when its last bit changes.
#[inline]
pub(super) fn least(min_spread: f64, level: f64) -> f64 {
    min_spread.max(LEAST_RATIO * level.abs()).max(LEAST)
}
