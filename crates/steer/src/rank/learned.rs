//! The scorer that learns weights from outcomes.
//!
//! The model is linear: the cost of a request, relative to a good one, is `scale × (weights · badness) + base` with
//! coefficients of 0 or more. Projected gradient descent with steps by AdaGrad (Duchi, Hazan, Singer, JMLR 12, 2011)
//! keeps the sum of squared errors within `O(√T)` of the best fixed coefficients in the box.

use crate::error::Error;
use crate::rank::experience::Experience;
use crate::rank::profile::Metric;
use crate::rank::scorer::{Parts, Scorer, View, normalise};
use crate::rank::trust::MAX_BADNESS;
use crate::rank::weighted::sum_up;

/// Largest coefficient, for badness and cost from 0 to 1: a metric that alone explains the cost has a coefficient near 1.
pub const MAX_COEFFICIENT: f64 = 4.0;
/// Outcomes after which the weights of the profile have made room for the learned ones. Fewer say little about ten
/// metrics.
const ENOUGH: f64 = 64.0;
/// Factor of the sums of squared gradients with each outcome. The steps follow about the last 4,000 outcomes, so that
/// weights adapt when the application changes.
const MEMORY: f64 = 1.0 - 1.0 / 4096.0;

/// Weights that follow reported outcomes.
#[derive(Clone, Debug)]
pub struct Learned {
    start: Vec<f64>,
    weights: Vec<f64>,
    /// One for each metric, then the base.
    coefficients: Vec<f64>,
    squares: Vec<f64>,
    outcomes: f64,
}

impl Learned {
    /// Starts from the weights of the metrics.
    pub fn new(metrics: &[Metric]) -> Self {
        let mut start: Vec<f64> = metrics.iter().map(|m| m.weight).collect();
        normalise(&mut start);
        let mut coefficients = start.clone();
        coefficients.push(0.0);
        let squares = vec![0.0; coefficients.len()];
        Self { weights: start.clone(), start, coefficients, squares, outcomes: 0.0 }
    }

    /// Returns the cost that the model expects of a candidate with `badness`, 0 to 1 for a cost in the known range.
    pub fn expected(&self, badness: &[f64]) -> f64 {
        self.features(badness).zip(&self.coefficients).map(|(x, c)| x * c).sum()
    }

    /// Makes room for the learned weights, the more the more outcomes there were.
    fn blend(&mut self) {
        let share = (self.outcomes / ENOUGH).min(1.0);
        let mut learned = self.coefficients[..self.weights.len()].to_vec();
        normalise(&mut learned);
        for ((weight, start), learned) in self.weights.iter_mut().zip(&self.start).zip(learned) {
            *weight = start + (learned - start) * share;
        }
    }

    fn features<'a>(&self, badness: &'a [f64]) -> impl Iterator<Item = f64> + use<'a> {
        badness.iter().map(|b| feature(*b)).chain([1.0])
    }
}

/// Maps badness to 0 to 1 so that differences among good candidates count: 0.5 for a candidate twice as bad.
#[inline]
fn feature(badness: f64) -> f64 {
    let badness = badness.clamp(0.0, MAX_BADNESS);
    badness / (1.0 + badness)
}

impl Scorer for Learned {
    fn name(&self) -> &'static str {
        "learned"
    }

    fn score(&mut self, view: &View<'_>, parts: &mut Parts) {
        sum_up(&self.weights, view, parts);
    }

    fn learn(&mut self, badness: &[f64], cost: f64) {
        if badness.len() + 1 != self.coefficients.len() || !cost.is_finite() {
            return;
        }
        let error = self.expected(badness) - cost.clamp(0.0, 1.0);
        let features = badness.iter().map(|b| feature(*b)).chain([1.0]);
        for ((coefficient, square), x) in
            self.coefficients.iter_mut().zip(&mut self.squares).zip(features)
        {
            let gradient = 2.0 * error * x;
            *square = *square * MEMORY + gradient * gradient;
            if *square > 0.0 {
                // Half of the step of the theorem: the diameter of the box is an upper bound of what is needed.
                let step = 0.5 / square.sqrt();
                *coefficient = (*coefficient - step * gradient).clamp(0.0, MAX_COEFFICIENT);
            }
        }
        self.outcomes += 1.0;
        self.blend();
    }

    fn experience(&self) -> Option<Experience> {
        let (coefficients, squares) = (self.coefficients.clone(), self.squares.clone());
        Some(Experience { coefficients, squares, outcomes: self.outcomes, good_seconds: None })
    }

    fn restore(&mut self, experience: &Experience) -> Result<(), Error> {
        let Experience { coefficients, squares, outcomes, .. } = experience;
        let size = self.coefficients.len();
        if coefficients.len() != size || squares.len() != size {
            return Err(Error::Experience("they are of another number of metrics"));
        }
        if !coefficients.iter().all(|c| (0.0..=MAX_COEFFICIENT).contains(c)) {
            return Err(Error::Experience("a coefficient is out of range"));
        }
        if !squares.iter().chain([outcomes]).all(|sum| sum.is_finite() && *sum >= 0.0) {
            return Err(Error::Experience("a sum is not a finite number of at least zero"));
        }
        self.coefficients.clone_from(coefficients);
        self.squares.clone_from(squares);
        self.outcomes = *outcomes;
        self.blend();
        Ok(())
    }

    fn weights(&self) -> &[f64] {
        &self.weights
    }
}
