//! Tests whether two runs differ, on blocks of time.

use crate::analysis::blocks::{Random, Sum};

/// Rounds of a permutation test: the least p-value is 0.0002, small enough for a correction by hundreds of callpaths.
const ROUNDS: usize = 5000;

/// Rounds of a bootstrap for the interval.
const INTERVAL_ROUNDS: usize = 1000;

/// The fewest blocks of each run. Of fewer, no arrangement is rare.
pub(super) const MIN_BLOCKS: usize = 5;

fn mean(blocks: &mut dyn Iterator<Item = Sum>) -> f64 {
    let (part, whole) =
        blocks.fold((0.0, 0.0), |(part, whole), sum| (part + sum.part, whole + sum.whole));
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The probability of a difference of the means as great as this one if both runs were alike: blocks of both are dealt
/// anew (Fisher, 1935). `None` if a run has too few blocks.
pub(super) fn p_value(a: &[Sum], b: &[Sum], seed: u64) -> Option<f64> {
    if a.len() < MIN_BLOCKS || b.len() < MIN_BLOCKS {
        return None;
    }
    let difference =
        |a: &[Sum], b: &[Sum]| (mean(&mut a.iter().copied()) - mean(&mut b.iter().copied())).abs();
    let observed = difference(a, b);
    let mut all: Vec<Sum> = a.iter().chain(b).copied().collect();
    let mut random = Random::new(seed);
    let mut as_great = 1_u32;
    for _ in 0..ROUNDS {
        // Fisher and Yates: the first blocks are a random choice of all.
        for at in 0..a.len() {
            let other = at + random.below(all.len() - at);
            all.swap(at, other);
        }
        let (left, right) = all.split_at(a.len());
        // Equal means differ by rounding, according to their order.
        as_great += u32::from(difference(left, right) >= observed * (1.0 - 1e-9));
    }
    Some(f64::from(as_great) / (ROUNDS + 1) as f64)
}

/// The ratio of the means of `b` and `a` minus 1, with a 95 % interval by a bootstrap over blocks.
pub(super) fn change(a: &[Sum], b: &[Sum], seed: u64) -> (f64, f64, f64) {
    let ratio = |a: f64, b: f64| if a > 0.0 { b / a - 1.0 } else { 0.0 };
    let value = ratio(mean(&mut a.iter().copied()), mean(&mut b.iter().copied()));
    let mut random = Random::new(seed);
    let mut pick = |of: &[Sum]| mean(&mut (0..of.len()).map(|_| of[random.below(of.len())]));
    let mut rounds: Vec<f64> = (0..INTERVAL_ROUNDS).map(|_| ratio(pick(a), pick(b))).collect();
    rounds.sort_by(f64::total_cmp);
    let at = |share: f64| rounds[(rounds.len() as f64 * share) as usize];
    (value, at(0.025), at(0.975))
}

/// Corrects p-values for their number (Holm, 1979): the chance that any of them is wrong is at most the level.
pub(super) fn holm(p_values: &mut [(usize, f64)]) {
    p_values.sort_by(|a, b| a.1.total_cmp(&b.1));
    let count = p_values.len();
    let mut least = 0.0_f64;
    for (rank, (_, p)) in p_values.iter_mut().enumerate() {
        least = least.max(*p * (count - rank) as f64).min(1.0);
        *p = least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(mean: f64, seed: u64) -> Vec<Sum> {
        let mut random = Random::new(seed);
        (0..30).map(|_| Sum { part: mean + random.exponential(0.3 * mean), whole: 1.0 }).collect()
    }

    #[test]
    fn equal_runs_do_not_differ_and_others_do() {
        let p = |b: f64| p_value(&blocks(100.0, 1), &blocks(b, 2), 7).unwrap();
        assert!(p(100.0) > 0.05);
        assert!(p(150.0) < 0.001);
        assert_eq!(p_value(&blocks(1.0, 1)[..3], &blocks(1.0, 2), 7), None);
        let same = blocks(1.0, 1);
        assert_eq!(p_value(&same, &same, 7), Some(1.0));
    }

    #[test]
    fn one_in_twenty_equal_runs_differs_at_the_level_of_five_percent() {
        let differ = |seed: u64| {
            p_value(&blocks(100.0, 2 * seed), &blocks(100.0, 2 * seed + 1), 7).unwrap() < 0.05
        };
        let wrong = (100..160).filter(|seed| differ(*seed)).count();
        assert!(wrong <= 8, "{wrong} of 60");
    }

    #[test]
    fn the_interval_has_the_change() {
        let (value, low, high) = change(&blocks(100.0, 1), &blocks(150.0, 2), 3);
        assert!(low < 0.5 && 0.5 < high && low < value && value < high);
    }

    #[test]
    fn corrected_p_values_keep_their_order() {
        let mut p_values = vec![(0, 0.04), (1, 0.01), (2, 0.5)];
        holm(&mut p_values);
        assert_eq!(p_values, [(1, 0.03), (0, 0.08), (2, 0.5)]);
    }
}
