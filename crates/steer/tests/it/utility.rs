//! Metrics that do not matter are collected less often, and in full again when they matter.

use skopos_model::SplitMix64;
use skopos_steer::rank::{Collection, Method, Ranker};

use crate::table::{at, inputs, profile, rank, reading};

#[test]
fn a_metric_without_utility_is_relaxed_and_brought_back() {
    let mut ranker = Ranker::new(profile(Method::Equal), 1).expect("a profile");
    let names = ["a", "b", "c"];
    let mut random = SplitMix64::new(4);
    let mut second = 0.0;
    let mut run = |ranker: &mut Ranker, rounds: usize, queue: f64| {
        for _ in 0..rounds {
            second += 1.0;
            let rows: [[f64; 3]; 3] =
                std::array::from_fn(|at| [random.between(0.001, 0.01), 1e-3, queue * at as f64]);
            rank(ranker, &names, &rows, second);
        }
        second
    };
    let now = run(&mut ranker, 3000, 0.0);
    let collections = |r: &Ranker| [0, 1, 2].map(|metric| r.utility().collection(metric));
    use Collection::{Full, Relaxed};
    assert_eq!(collections(&ranker), [Full, Relaxed, Relaxed]);
    assert!(ranker.utility().of(0) > 0.05 && ranker.utility().of(2) < 0.005);
    // A relaxed metric is polled less often, so its value may be older.
    let mut older = inputs(&[[0.001, 1e-3, 0.0]; 3], now + 1.0);
    older.set(0, 2, reading(0.0, now + 1.0 - 20.0));
    let ranking = ranker.rank(at(now + 1.0), &names, &older).expect("a ranking");
    assert_eq!(ranking.explain(0)[2].fault, None);
    run(&mut ranker, 16, 50.0);
    assert_eq!(collections(&ranker)[2], Full);
}
