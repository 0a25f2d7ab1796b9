//! Order, weights and explanations.

use proptest::prelude::*;
use skopos_steer::rank::{Basis, Better, Method, Metric, Profile, Ranker, State};

use crate::table::{at, inputs, order, profile, rank, reading, weight};

const METHODS: [Method; 5] =
    [Method::Latency, Method::Equal, Method::Given, Method::Learned, Method::Pareto];
const NAMES: [&str; 3] = ["a", "b", "c"];

#[test]
fn the_best_in_everything_is_first_by_every_method() {
    for method in METHODS {
        let mut ranker = Ranker::new(profile(method), 1).expect("a profile");
        let rows = [[0.08, 2e-3, 40.0], [0.001, 1e-3, 3.0], [0.01, 1e-3, 9.0]];
        let ranking = rank(&mut ranker, &NAMES, &rows, 0.0);
        assert_eq!(order(&ranking, &NAMES), ["b", "c", "a"], "{method:?}");
        assert_eq!(ranking.basis(), Basis::Scores);
        assert_eq!(ranking.entries()[0].score, 0.0, "{method:?}");
    }
}

#[test]
fn larger_is_better_where_the_metric_says_it() {
    let metric = Metric { better: Better::Higher, ..Metric::new("bandwidth", 1.0) };
    let profile = Profile::new("bandwidth", Method::Given, vec![metric]);
    let mut ranker = Ranker::new(profile, 1).expect("a profile");
    let mut inputs = skopos_steer::rank::Inputs::new(2, 1);
    inputs.set(0, 0, reading(1e8, 0.0));
    inputs.set(1, 0, reading(1e9, 0.0));
    let ranking = ranker.rank(at(0.0), &["slow", "fast"], &inputs).expect("a ranking");
    assert_eq!(order(&ranking, &["slow", "fast"]), ["fast", "slow"]);
    assert!((ranking.entries()[1].score - 9.0).abs() < 1e-6);
}

#[test]
fn a_candidate_known_to_be_slow_has_less_than_four_thousandths_of_the_requests() {
    let mut ranker = Ranker::new(profile(Method::Latency), 1).expect("a profile");
    let rows = [[0.0002, 0.0, 0.0], [0.0003, 0.0, 0.0], [0.008, 0.0, 0.0]];
    let ranking = rank(&mut ranker, &NAMES, &rows, 0.0);
    assert!(weight(&ranking, 2) < 0.004, "{}", weight(&ranking, 2));
    assert!(weight(&ranking, 1) > 0.3, "the choice is weighted: {}", weight(&ranking, 1));
}

#[test]
fn reasons_name_the_largest_parts() {
    let mut ranker = Ranker::new(profile(Method::Equal), 1).expect("a profile");
    let rows = [[0.001, 5e-3, 90.0], [0.001, 1e-3, 10.0]];
    let ranking = rank(&mut ranker, &["a", "b"], &rows, 0.0);
    let names: Vec<&str> = ranking.reasons(0).iter().map(|r| r.name).collect();
    assert_eq!(names, ["queue", "rtt_seconds"]);
    assert!(ranking.reasons(1).is_empty());
    assert!(ranking.explain(7).is_empty());
}

#[test]
fn an_idle_candidate_that_nothing_is_known_of_is_explored() {
    let mut ranker = Ranker::new(profile(Method::Equal), 1).expect("a profile");
    let nan = f64::NAN;
    let rows = [[0.001, 1e-3, 1.0], [nan, nan, nan], [nan, nan, nan]];
    let ranking = rank(&mut ranker, &NAMES, &rows, 0.0);
    assert_eq!(weight(&ranking, 1), 0.005);
    assert_eq!(weight(&ranking, 1) + weight(&ranking, 2), ranker.profile().exploration);
    assert_eq!(ranking.entries()[2].state, State::Unknown);
    let again = [[0.001, 1e-3, 1.0], [0.001, 1e-3, 1.0], [nan, nan, nan]];
    let ranking = rank(&mut ranker, &NAMES, &again, 1.0);
    assert!(weight(&ranking, 1) > 0.4, "a fast node is found again");
}

#[test]
fn equal_candidates_stand_in_an_order_that_depends_on_the_seed() {
    let rows = [[0.001, 1e-3, 1.0]; 3];
    let first = |seed| {
        let mut ranker = Ranker::new(profile(Method::Equal), seed).expect("a profile");
        rank(&mut ranker, &NAMES, &rows, 0.0).entries()[0].candidate
    };
    let firsts: std::collections::BTreeSet<usize> = (0..40).map(first).collect();
    assert_eq!(firsts.len(), 3);
    assert_eq!(first(9), first(9));
}

proptest! {
    #[test]
    fn parts_sum_to_the_score_exactly_and_weights_to_one(
        rounds in prop::collection::vec(
            prop::collection::vec(prop::array::uniform3(prop_oneof![
                Just(f64::NAN), Just(0.0), Just(f64::INFINITY), Just(-1.0), Just(1e300), 0.0..1.0
            ]), 1..12), 1..6),
        method in prop::sample::select(METHODS.to_vec()),
    ) {
        let mut ranker = Ranker::new(profile(method), 1).expect("a profile");
        for (round, rows) in rounds.iter().enumerate() {
            let names: Vec<String> = (0..rows.len()).map(|n| n.to_string()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let seconds = round as f64 * 3.0;
            let ranking = ranker.rank(at(seconds), &names, &inputs(rows, seconds)).expect("a ranking");
            let mut sum = 0.0;
            for entry in ranking.entries() {
                let parts: f64 = ranking.explain(entry.candidate).iter().map(|c| c.part).sum();
                prop_assert_eq!(parts.to_bits(), entry.score.to_bits());
                prop_assert!(entry.weight >= 0.0 && entry.score.is_finite());
                sum += entry.weight;
            }
            prop_assert!((sum - 1.0).abs() < 1e-9, "weights sum to {}", sum);
        }
    }
}
