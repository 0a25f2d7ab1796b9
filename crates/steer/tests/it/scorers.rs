//! The conformance suite of scorers, and tests of the Pareto front.

use proptest::prelude::*;
use skopos_model::SplitMix64;
use skopos_steer::rank::{Learned, Metric, Pareto, Parts, Scorer, Subject, View, Weighted};

fn metrics(count: usize) -> Vec<Metric> {
    let subject = [Subject::Latency, Subject::Network, Subject::Host];
    (0..count)
        .map(|at| Metric { subject: subject[at % 3], ..Metric::new(&format!("m{at}"), 1.0) })
        .collect()
}

fn scorers(metrics: &[Metric]) -> Vec<Box<dyn Scorer>> {
    vec![
        Box::new(Weighted::latency(metrics)),
        Box::new(Weighted::equal(metrics)),
        Box::new(Weighted::given(metrics)),
        Box::new(Learned::new(metrics)),
        Box::new(Pareto::new(metrics)),
    ]
}

fn scores(scorer: &mut dyn Scorer, metrics: &[Metric], badness: &[f64]) -> Vec<f64> {
    let mut parts = Parts::default();
    let candidates = badness.len() / metrics.len();
    parts.reset(candidates, metrics.len());
    scorer.score(&View { metrics, badness }, &mut parts);
    for candidate in 0..candidates {
        let row = parts.row(candidate);
        assert!(row.iter().all(|p| p.is_finite() && *p >= 0.0), "{}: {row:?}", scorer.name());
    }
    (0..candidates).map(|c| parts.row(c).iter().sum()).collect()
}

fn table() -> impl Strategy<Value = (usize, Vec<f64>)> {
    (1..6_usize, 1..20_usize).prop_flat_map(|(width, rows)| {
        let value = prop_oneof![Just(0.0), Just(1.0), Just(100.0), 0.0..100.0];
        prop::collection::vec(value, width * rows).prop_map(move |values| (width, values))
    })
}

proptest! {
    #[test]
    fn every_scorer_conforms((width, badness) in table(), outcomes in prop::collection::vec(0.0..1.0, 0..50)) {
        let metrics = metrics(width);
        for mut scorer in scorers(&metrics) {
            for (at, cost) in outcomes.iter().enumerate() {
                let rows = badness.len() / width;
                scorer.learn(&badness[at % rows * width..][..width], *cost);
            }
            // Outcomes of another width or without a number are ignored.
            scorer.learn(&[1.0; 40], 0.5);
            scorer.learn(&badness[..width], f64::NAN);
            let sum: f64 = scorer.weights().iter().sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{}: weights sum to {sum}", scorer.name());
            let first = scores(scorer.as_mut(), &metrics, &badness);
            prop_assert_eq!(&first, &scores(scorer.as_mut(), &metrics, &badness));
            dominance(scorer.name(), width, &badness, &first)?;
            let best = scores(scorer.as_mut(), &metrics, &vec![0.0; width]);
            prop_assert_eq!(best, vec![0.0]);
        }
    }
}

/// No candidate has a larger score than one that is at most as good in every metric.
fn dominance(
    name: &str,
    width: usize,
    badness: &[f64],
    scores: &[f64],
) -> Result<(), TestCaseError> {
    for (a, first) in badness.chunks(width).zip(scores) {
        for (b, second) in badness.chunks(width).zip(scores) {
            if a.iter().zip(b).all(|(a, b)| a <= b) {
                prop_assert!(first <= &(second + 1e-9), "{name}: {a:?} {first}, {b:?} {second}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_network_counts_twice_with_equal_weights() {
    let metrics = metrics(3);
    assert_eq!(Weighted::equal(&metrics).weights(), [0.4, 0.4, 0.2]);
    assert_eq!(Weighted::latency(&metrics).weights(), [1.0, 0.0, 0.0]);
}

/// Layers by comparing every pair, again and again.
fn layers_by_pairs(rows: &[[f64; 2]]) -> Vec<usize> {
    let mut layers = vec![usize::MAX; rows.len()];
    for layer in 0.. {
        let open: Vec<usize> = (0..rows.len()).filter(|r| layers[*r] == usize::MAX).collect();
        if open.is_empty() {
            return layers;
        }
        let beats = |a: [f64; 2], b: [f64; 2]| a[0] <= b[0] && a[1] <= b[1] && a != b;
        for row in &open {
            if !open.iter().any(|other| beats(rows[*other], rows[*row])) {
                layers[*row] = layer;
            }
        }
    }
    layers
}

#[test]
fn layers_of_two_objectives_are_those_of_all_pairs() {
    let metrics = metrics(2);
    let mut random = SplitMix64::new(5);
    for _ in 0..200 {
        let rows: Vec<[f64; 2]> =
            (0..40).map(|_| [random.below(8) as f64, random.below(8) as f64]).collect();
        let badness = rows.concat();
        let view = View { metrics: &metrics, badness: &badness };
        assert_eq!(Pareto::new(&metrics).layers(&view), layers_by_pairs(&rows), "{rows:?}");
    }
}

#[test]
fn a_front_of_many_objectives_is_that_of_all_pairs_while_it_fits() {
    let metrics = metrics(4);
    let mut random = SplitMix64::new(6);
    let badness: Vec<f64> = (0..4 * 60).map(|_| random.unit()).collect();
    let view = View { metrics: &metrics, badness: &badness };
    let rows: Vec<&[f64]> = badness.chunks(4).collect();
    let beaten = |b: &[f64]| rows.iter().any(|a| *a != b && a.iter().zip(b).all(|(a, b)| a <= b));
    let expected: Vec<usize> = rows.iter().map(|r| usize::from(beaten(r))).collect();
    assert_eq!(Pareto::new(&metrics).layers(&view), expected);
}
