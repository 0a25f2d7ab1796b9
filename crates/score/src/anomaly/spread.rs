/// A spread is at least this share of the level: a thousandth of it is neither noise nor news.
const LEAST_RATIO: f64 = 1e-3;

/// And at least this, for levels about zero.
const LEAST: f64 = 1e-9;

/// The least spread that is reckoned with for values about `level`, where the rule demands
/// `min_spread`. It keeps a constant series from being unusual at its first last bit.
pub(super) fn least(min_spread: f64, level: f64) -> f64 {
    min_spread.max(LEAST_RATIO * level.abs()).max(LEAST)
}
