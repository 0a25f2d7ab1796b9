//! Learned weights: their regret against the best fixed weights, and their choice in a simulation.

use skopos_model::SplitMix64;
use skopos_steer::rank::{
    Experience, Learned, MAX_COEFFICIENT, MAX_OUTCOME_SECONDS, Method, Metric, Outcome, Ranker,
    Scorer,
};

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
    for (candidate, seconds, failed) in [
        ("a", 0.0, false),
        ("b", MAX_OUTCOME_SECONDS, false),
        ("a", 0.0, true),
        ("b", f64::MIN_POSITIVE, false),
    ] {
        ranker.learn(&Outcome { candidate, seconds, failed }).expect("an outcome");
        assert!((ranker.weights().iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
}

/// A ranker that learned from `rounds` outcomes.
fn experienced(rounds: u32) -> Ranker {
    let mut ranker = Ranker::new(profile(Method::Learned), 1).expect("a profile");
    (0..rounds).for_each(|round| learn(&mut ranker, round));
    ranker
}

fn learn(ranker: &mut Ranker, round: u32) {
    let slow = 0.002 + 0.001 * f64::from(round % 7);
    rank(ranker, &["a", "b"], &[[0.001, 0.003, slow], [0.001; 3]], f64::from(round));
    let outcome = Outcome { candidate: "a", seconds: slow, failed: false };
    ranker.learn(&outcome).expect("an outcome");
}

#[test]
fn a_ranker_goes_on_with_the_weights_of_another_one() {
    let mut first = experienced(100);
    let mut second = experienced(0);
    assert_ne!(first.weights(), second.weights());
    let experience = first.experience().expect("it learns");
    second.restore(&experience).expect("of the same metrics");
    assert_eq!(first.weights(), second.weights());
    assert_eq!(second.experience(), Some(experience));
    for round in 100..200 {
        learn(&mut first, round);
        learn(&mut second, round);
    }
    assert_eq!(first.weights(), second.weights());
    assert_eq!(Ranker::new(profile(Method::Equal), 1).expect("one").experience(), None);
}

#[test]
fn weights_that_cannot_be_are_refused_and_change_nothing() {
    let good = experienced(100).experience().expect("it learns");
    let mut ranker = experienced(10);
    let before = ranker.experience();
    let with = |change: fn(&mut Experience)| {
        let mut experience = good.clone();
        change(&mut experience);
        experience
    };
    for bad in [
        with(|e| e.coefficients.truncate(3)),
        with(|e| e.squares.push(1.0)),
        with(|e| e.coefficients[0] = MAX_COEFFICIENT + 1.0),
        with(|e| e.coefficients[3] = f64::NAN),
        with(|e| e.squares[1] = -1.0),
        with(|e| e.outcomes = f64::INFINITY),
        with(|e| e.good_seconds = Some(f64::NAN)),
    ] {
        assert!(ranker.restore(&bad).is_err(), "{bad:?}");
        assert_eq!(ranker.experience(), before);
    }
}
