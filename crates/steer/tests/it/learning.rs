//! Learned weights: their regret against the best fixed weights, and their choice in a simulation.

use skopos_model::SplitMix64;
use skopos_steer::rank::{Learned, MAX_COEFFICIENT, Method, Metric, Outcome, Ranker, Scorer};

use crate::table::{profile, rank};

const WIDTH: usize = 4;

/// Badness with values as the scorer sees them, and the cost of the request: the first metric matters, the second
/// half as much.
fn example(random: &mut SplitMix64) -> (Vec<f64>, f64) {
    let x: Vec<f64> = (0..WIDTH).map(|_| random.between(0.0, 0.9)).collect();
    let badness = x.iter().map(|x| x / (1.0 - x)).collect();
    let noise = 0.1 * random.normal();
    (badness, (0.6 * x[0] + 0.3 * x[1] + noise).clamp(0.0, 1.0))
}

fn squash(badness: &[f64]) -> Vec<f64> {
    badness.iter().map(|b| b / (1.0 + b)).chain([1.0]).collect()
}

/// The squared errors of the best fixed coefficients in the box, found by descent over one coefficient after the other.
fn best_fixed(examples: &[(Vec<f64>, f64)]) -> f64 {
    let mut gram = [[0.0; WIDTH + 1]; WIDTH + 1];
    let mut moment = [0.0; WIDTH + 1];
    for (badness, cost) in examples {
        let x = squash(badness);
        for i in 0..=WIDTH {
            moment[i] += x[i] * cost;
            for j in 0..=WIDTH {
                gram[i][j] += x[i] * x[j];
            }
        }
    }
    let mut c = [0.0; WIDTH + 1];
    for _ in 0..1000 {
        for i in 0..=WIDTH {
            let others: f64 = (0..=WIDTH).filter(|j| *j != i).map(|j| gram[i][j] * c[j]).sum();
            c[i] = ((moment[i] - others) / gram[i][i]).clamp(0.0, MAX_COEFFICIENT);
        }
    }
    let error = |(badness, cost): &(Vec<f64>, f64)| {
        squash(badness).iter().zip(c).map(|(x, c)| x * c).sum::<f64>() - cost
    };
    examples.iter().map(|e| error(e).powi(2)).sum()
}

#[test]
fn the_regret_grows_no_faster_than_the_root_of_the_outcomes() {
    for seed in 1..4 {
        let mut random = SplitMix64::new(seed);
        let examples: Vec<_> = (0..4000).map(|_| example(&mut random)).collect();
        for count in [500, 1000, 2000, 4000] {
            let metrics: Vec<Metric> =
                (0..WIDTH).map(|at| Metric::new(&format!("m{at}"), 1.0)).collect();
            let mut learned = Learned::new(&metrics);
            let mut loss = 0.0;
            for (badness, cost) in &examples[..count] {
                loss += (learned.expected(badness) - cost).powi(2);
                learned.learn(badness, *cost);
            }
            let regret = loss - best_fixed(&examples[..count]);
            let bound = (count as f64).sqrt();
            assert!(regret < bound, "seed {seed}, {count} outcomes: {regret} above {bound}");
        }
    }
}

#[test]
fn weights_move_to_the_metric_that_matters_and_follow_a_change() {
    let mut ranker = Ranker::new(profile(Method::Learned), 1).expect("a profile");
    let mut random = SplitMix64::new(3);
    let names = ["a", "b", "c"];
    let mut shares = Vec::new();
    for phase in 0..2 {
        for round in 0..3000 {
            let rows: [[f64; 3]; 3] =
                std::array::from_fn(|_| std::array::from_fn(|_| random.between(0.001, 0.02)));
            rank(&mut ranker, &names, &rows, f64::from(round));
            let at = random.below(3);
            let cost = if phase == 0 { rows[at][2] } else { rows[at][1] };
            let outcome = Outcome { candidate: names[at], seconds: cost, failed: false };
            ranker.learn(&outcome).expect("an outcome");
        }
        shares.push(ranker.weights().to_vec());
    }
    assert!(shares[0][2] > 0.7, "{shares:?}");
    assert!(shares[1][1] > 0.5, "{shares:?}");
}

#[test]
fn outcomes_at_the_ends_of_the_range_keep_weights_usable() {
    let mut ranker = Ranker::new(profile(Method::Learned), 1).expect("a profile");
    rank(&mut ranker, &["a", "b"], &[[0.0; 3], [1e300; 3]], 0.0);
    for (candidate, seconds, failed) in
        [("a", 0.0, false), ("b", 1e300, false), ("a", 0.0, true), ("b", f64::MIN_POSITIVE, false)]
    {
        ranker.learn(&Outcome { candidate, seconds, failed }).expect("an outcome");
        assert!((ranker.weights().iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
