//! Scorers with fixed weights: latency only, equal weights, given weights.

use crate::rank::profile::{Metric, Subject};
use crate::rank::scorer::{Parts, Scorer, View, normalise};

/// Weight of a network metric in the method `equal`, where others have 1. The prototype of MicroMon has "higher
/// weights" for network latency and bandwidth (section 4.3) and does not give a number.
const NETWORK_WEIGHT: f64 = 2.0;

/// A weighted sum with weights that do not change.
#[derive(Clone, Debug)]
pub struct Weighted {
    name: &'static str,
    weights: Vec<f64>,
}

impl Weighted {
    /// Makes the scorer that knows metrics of the subject `latency` alone.
    pub fn latency(metrics: &[Metric]) -> Self {
        Self::of("latency", metrics, |m| f64::from(m.subject == Subject::Latency))
    }

    /// Makes the scorer with equal weights, and twice that for the network.
    pub fn equal(metrics: &[Metric]) -> Self {
        Self::of("equal", metrics, |m| match m.subject {
            Subject::Host => 1.0,
            Subject::Network | Subject::Latency => NETWORK_WEIGHT,
        })
    }

    /// Makes the scorer with the weights of the metrics.
    pub fn given(metrics: &[Metric]) -> Self {
        Self::of("given", metrics, |m| m.weight)
    }

    fn of(name: &'static str, metrics: &[Metric], weight: impl Fn(&Metric) -> f64) -> Self {
        let mut weights: Vec<f64> = metrics.iter().map(weight).collect();
        normalise(&mut weights);
        Self { name, weights }
    }
}

impl Scorer for Weighted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn score(&mut self, view: &View<'_>, parts: &mut Parts) {
        sum_up(&self.weights, view, parts);
    }

    fn weights(&self) -> &[f64] {
        &self.weights
    }
}

/// Writes the parts of a weighted sum.
pub(crate) fn sum_up(weights: &[f64], view: &View<'_>, parts: &mut Parts) {
    for (row, out) in view.rows().zip(parts.rows_mut()) {
        for ((part, badness), weight) in out.iter_mut().zip(row).zip(weights) {
            *part = badness * weight;
        }
    }
}
