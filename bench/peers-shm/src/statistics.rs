//! Medians with their intervals.

use serde_json::{Value, json};

/// Returns the median, and the bounds between which the true one lies with 95 % (by order statistics).
pub(crate) fn median(rounds: &[f64]) -> Value {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let half = 0.98 * n.sqrt();
    let at = |place: f64| sorted[(place.max(0.0) as usize).min(sorted.len() - 1)];
    json!({"median": at(n / 2.0), "low": at(n / 2.0 - half), "high": at(n / 2.0 + half)})
}

/// Returns the middle one of `spent`.
pub(crate) fn middle(mut spent: Vec<u64>) -> f64 {
    let at = spent.len() / 2;
    *spent.select_nth_unstable(at).1 as f64
}
