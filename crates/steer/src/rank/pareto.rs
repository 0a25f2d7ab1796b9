//! The scorer that puts candidates of the Pareto front first.
//!
//! A candidate dominates another if it is at least as good in every metric and better in one. With two metrics,
//! candidates are in layers: the front, the front of the rest, and so on, in `O(n log n)` (a sweep over the sorted
//! candidates with a binary search over the layers; Jensen, IEEE Trans. Evol. Comput. 7, 2003). With more metrics there
//! are two layers: the front and the rest. Within a layer, the weighted mean of the badness, squashed below 1, decides.

use crate::rank::profile::Metric;
use crate::rank::scorer::{Parts, Scorer, View, normalise};

/// Most candidates of a front with more than two metrics that others are compared with. It bounds the work for a
/// thousand candidates; a dominated candidate that only later members dominate counts as one of the front.
const MAX_FRONT: usize = 64;
/// Deepest layer: at a score of 16 a candidate has nearly no weight.
const MAX_LAYER: usize = 16;

/// Front first, then weights.
#[derive(Clone, Debug)]
pub struct Pareto {
    weights: Vec<f64>,
    /// Columns with a weight above zero: the objectives.
    objectives: Vec<usize>,
}

impl Pareto {
    /// Makes the scorer of the metrics with weights above zero.
    pub fn new(metrics: &[Metric]) -> Self {
        let mut weights: Vec<f64> = metrics.iter().map(|m| m.weight).collect();
        normalise(&mut weights);
        let objectives = (0..weights.len()).filter(|at| weights[*at] > 0.0).collect();
        Self { weights, objectives }
    }

    /// Returns the layer of each candidate: 0 for the front.
    pub fn layers(&self, view: &View<'_>) -> Vec<usize> {
        let rows: Vec<&[f64]> = view.rows().collect();
        match self.objectives[..] {
            [only] => two(&rows, only, only),
            [first, second] => two(&rows, first, second),
            _ => self.many(&rows),
        }
    }

    fn many(&self, rows: &[&[f64]]) -> Vec<usize> {
        let sum = |row: &[f64]| self.objectives.iter().map(|o| row[*o]).sum::<f64>();
        // A candidate is dominated only by candidates with a smaller sum.
        let mut order: Vec<(f64, usize)> = rows.iter().map(|r| sum(r)).zip(0..).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut layers = vec![0; rows.len()];
        let mut front: Vec<usize> = Vec::new();
        for (_, at) in order {
            if front.iter().any(|f| self.dominates(rows[*f], rows[at])) {
                layers[at] = 1;
            } else if front.len() < MAX_FRONT {
                front.push(at);
            }
        }
        layers
    }

    fn dominates(&self, a: &[f64], b: &[f64]) -> bool {
        let mut better = false;
        for at in &self.objectives {
            if a[*at] > b[*at] {
                return false;
            }
            better |= a[*at] < b[*at];
        }
        better
    }
}

/// Layers of two objectives.
fn two(rows: &[&[f64]], first: usize, second: usize) -> Vec<usize> {
    let mut order: Vec<(f64, f64, usize)> =
        rows.iter().enumerate().map(|(at, row)| (row[first], row[second], at)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut layers = vec![0; rows.len()];
    // The last member of each layer, which has its smallest second value; they rise from layer to layer.
    let mut last: Vec<(f64, f64)> = Vec::new();
    for (x, y, at) in order {
        let dominated = |l: &(f64, f64)| l.1 < y || (l.1 == y && l.0 < x);
        let layer = last.partition_point(dominated);
        match last.get_mut(layer) {
            Some(member) => *member = (x, y),
            None => last.push((x, y)),
        }
        layers[at] = layer;
    }
    layers
}

impl Scorer for Pareto {
    fn name(&self) -> &'static str {
        "pareto"
    }

    fn score(&mut self, view: &View<'_>, parts: &mut Parts) {
        let layers = self.layers(view);
        for ((row, out), layer) in view.rows().zip(parts.rows_mut()).zip(layers) {
            for ((part, badness), weight) in out.iter_mut().zip(row).zip(&self.weights) {
                *part = weight * badness / (1.0 + badness);
            }
            if let Some(part) = out.last_mut() {
                *part = layer.min(MAX_LAYER) as f64;
            }
        }
    }

    fn weights(&self) -> &[f64] {
        &self.weights
    }
}
