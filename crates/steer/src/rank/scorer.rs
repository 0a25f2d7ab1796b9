//! The trait of scorers, and the table that they fill.

use crate::error::Error;
use crate::rank::experience::Experience;
use crate::rank::profile::Metric;

/// Values that a scorer reads: `badness` has a row for each candidate and a column for each metric; 0 is the best value
/// of the metric, 1 is twice as bad. All values are finite, from 0 to 100.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The metrics: the columns.
    pub metrics: &'a [Metric],
    /// Row after row.
    pub badness: &'a [f64],
}

impl<'a> View<'a> {
    /// Returns the rows: one for each candidate.
    pub fn rows(&self) -> std::slice::ChunksExact<'a, f64> {
        self.badness.chunks_exact(self.metrics.len().max(1))
    }
}

/// Parts of scores: for each candidate a part for each metric, then one for its layer behind the Pareto front.
///
/// Parts are finite and not negative, and a score is their sum: 0 for a candidate that is the best in everything.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    width: usize,
    parts: Vec<f64>,
}

impl Parts {
    /// Makes the table of zeros for `candidates` and `metrics`, in the memory of the old one.
    pub fn reset(&mut self, candidates: usize, metrics: usize) {
        self.width = metrics + 1;
        self.parts.clear();
        self.parts.resize(candidates * self.width, 0.0);
    }

    /// Returns the parts of a candidate: its metrics, then its layer.
    pub fn row(&self, candidate: usize) -> &[f64] {
        &self.parts[candidate * self.width..][..self.width]
    }

    /// Returns the rows for writing.
    pub fn rows_mut(&mut self) -> std::slice::ChunksExactMut<'_, f64> {
        self.parts.chunks_exact_mut(self.width.max(1))
    }
}

/// A method that makes scores of values. The conformance suite in `tests/it/scorers.rs` runs over every scorer.
pub trait Scorer: Send {
    /// Returns the name of the method.
    fn name(&self) -> &'static str;

    /// Writes the parts of every candidate into `parts`, which has zeros.
    ///
    /// A candidate that is at least as good as another in every metric has a score that is not larger.
    fn score(&mut self, view: &View<'_>, parts: &mut Parts);

    /// Takes the outcome of a request: the badness of the candidate that served it, and its cost relative to a good
    /// request, 0 to 1. Most scorers do not learn.
    fn learn(&mut self, _badness: &[f64], _cost: f64) {}

    /// Returns the state of learning; `None` for a scorer that does not learn. The cost of a good request is not in it.
    fn experience(&self) -> Option<Experience> {
        None
    }

    /// Goes on from the state of another scorer of the same metrics. A scorer that does not learn does nothing.
    ///
    /// # Errors
    /// The state is of another number of metrics, or a number is out of range; the scorer is as before.
    fn restore(&mut self, _experience: &Experience) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the weight of each metric, which sum to 1.
    fn weights(&self) -> &[f64];
}

/// Divides weights by their sum. Weights that are unusable count as zero; if all do, they become equal.
pub(crate) fn normalise(weights: &mut [f64]) {
    for weight in weights.iter_mut() {
        if !weight.is_finite() || *weight < 0.0 {
            *weight = 0.0;
        }
    }
    let sum: f64 = weights.iter().sum();
    let equal = 1.0 / weights.len().max(1) as f64;
    for weight in weights {
        *weight = if sum > 0.0 { *weight / sum } else { equal };
    }
}
