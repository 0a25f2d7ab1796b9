//! Moments, sketch and histogram against direct computations.

use proptest::collection::vec;
use proptest::prelude::*;
use skopos_store::stats::{Distribution, MAX_BINS, Moments, RELATIVE_ERROR};

/// Moments in two passes: the mean first, then the powers of the distances from it.
struct Reference {
    mean: f64,
    deviation: f64,
    skewness: f64,
    kurtosis: f64,
}

fn reference(values: &[f64]) -> Reference {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let power = |p| values.iter().map(|v| (v - mean).powi(p)).sum::<f64>();
    let (m2, m3, m4) = (power(2), power(3), power(4));
    Reference {
        mean,
        deviation: (m2 / (n - 1.0)).sqrt(),
        skewness: (m3 / n) / (m2 / n).powf(1.5),
        kurtosis: (m4 / n) / (m2 / n).powi(2) - 3.0,
    }
}

fn near(found: Option<f64>, expected: f64, scale: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() <= 1e-6 * scale.max(expected.abs()))
}

/// Divides the values into parts, summarises each, and merges them in an order that `order` seeds.
fn in_parts(values: &[f64], parts: usize, order: u64) -> Distribution {
    let mut sums = vec![Distribution::default(); parts];
    for (at, value) in values.iter().enumerate() {
        assert!(sums[at.wrapping_mul(7919) % parts].add(*value));
    }
    let mut whole = Distribution::default();
    let mut order = order;
    while !sums.is_empty() {
        let next = usize::try_from(order % sums.len() as u64).expect("small");
        order = order.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        whole.merge(&sums.swap_remove(next));
    }
    whole
}

proptest! {
    #[test]
    fn moments_equal_those_of_two_passes_in_any_order(
        values in vec(0.0..1e12f64, 2..400), parts in 1..20usize, order: u64,
    ) {
        let Reference { mean, deviation, skewness, kurtosis } = reference(&values);
        prop_assume!(deviation > 1e-3 * mean);
        let found = in_parts(&values, parts, order).moments;
        prop_assert_eq!(found.count(), values.len() as u64);
        prop_assert!(near(found.mean(), mean, 0.0), "{:?} {}", found.mean(), mean);
        prop_assert!(near(found.deviation(), deviation, 0.0));
        prop_assert!(near(found.skewness(), skewness, 1.0), "{:?} {}", found.skewness(), skewness);
        prop_assert!(near(found.kurtosis(), kurtosis, 1.0), "{:?} {}", found.kurtosis(), kurtosis);
        prop_assert_eq!(found.max(), values.iter().copied().reduce(f64::max));
        prop_assert_eq!(found.min(), values.iter().copied().reduce(f64::min));
    }

    #[test]
    fn quantiles_are_within_the_bound_merged_or_not(
        exponents in vec(-8.0..17.0f64, 1..400), zeros in 0..5usize, parts in 1..20usize,
        order: u64, q in 0.0..=1.0f64,
    ) {
        let mut values: Vec<f64> = exponents.iter().map(|e| 10f64.powf(*e)).collect();
        values.extend(std::iter::repeat_n(0.0, zeros));
        let found = in_parts(&values, parts, order).quantile(q).expect("values");
        values.sort_by(f64::total_cmp);
        let exact = values[(q * (values.len() - 1) as f64).floor() as usize];
        prop_assert!(
            (found - exact).abs() <= RELATIVE_ERROR * exact * (1.0 + 1e-9),
            "{} is not within {} of {}", found, RELATIVE_ERROR, exact
        );
    }

    #[test]
    fn a_histogram_is_the_same_in_any_order_and_counts_each_value(
        values in vec(prop_oneof![0.0..1e3f64, 0.0..1e18f64, Just(0.0), Just(1e18)], 1..200),
        parts in 1..20usize, order: u64,
    ) {
        let one = in_parts(&values, 1, 0).histogram;
        let many = in_parts(&values, parts, order).histogram;
        prop_assert_eq!(&one, &many);
        prop_assert!(one.bins().count() <= MAX_BINS);
        let coarse = one.coarsened(parts);
        prop_assert!(coarse.bins().count() <= parts);
        for (start, end, count) in one.bins().chain(coarse.bins()) {
            let there = values.iter().filter(|v| **v >= start && **v < end).count() as u64;
            prop_assert_eq!(count, there, "{}..{}", start, end);
        }
        prop_assert_eq!(one.bins().map(|b| b.2).sum::<u64>(), values.len() as u64);
        prop_assert_eq!(coarse.bins().map(|b| b.2).sum::<u64>(), values.len() as u64);
    }
}

#[test]
fn the_shape_of_equal_values_is_unknown_and_never_infinite() {
    let mut moments = Moments::default();
    assert_eq!((moments.mean(), moments.deviation(), moments.min()), (None, None, None));
    moments.add(0.1);
    assert_eq!((moments.mean(), moments.deviation(), moments.kurtosis()), (Some(0.1), None, None));
    for _ in 0..1_000 {
        moments.add(0.1);
    }
    assert_eq!((moments.skewness(), moments.kurtosis()), (None, None));
    assert!(moments.deviation().is_some_and(|d| d < 1e-15));
}

#[test]
fn an_invalid_amount_is_ignored() {
    let mut distribution = Distribution::default();
    for value in [f64::NAN, f64::INFINITY, -1.0, 1e19] {
        assert!(!distribution.add(value), "{value}");
    }
    assert!(distribution.add(0.0));
    assert_eq!(distribution.moments.count(), 1);
    assert_eq!(distribution.sketch.quantile(0.5), Some(0.0));
}
