//! Metrics that do not matter to the weights: their collection can be relaxed.
//!
//! The utility of a metric is the mean total variation between the weights with it and without it: half of the sum of
//! the absolute differences, 0 to 1. MicroMon calls this the marginal utility of a micrometric (section 4.3).

/// Utility below which a metric is relaxed: at most half a percent of requests would go elsewhere.
const RELAX_BELOW: f64 = 0.005;
/// Utility from which a relaxed metric is collected in full again. It is above [`RELAX_BELOW`], so that a metric does
/// not change every minute.
const RESTORE_FROM: f64 = 0.01;
/// Evaluations before a metric is relaxed.
const ENOUGH: u32 = 32;
/// Share of a new evaluation in the utility while it is below it: slow to relax.
const FALLING: f64 = 0.05;
/// Share of a new evaluation in the utility while it is above it: quick to restore.
const RISING: f64 = 0.5;

/// Rankings from one evaluation to the next: it costs as much as a ranking.
pub(crate) const EVERY: u64 = 8;

/// The collection that a metric needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collection {
    /// Its ordinary interval.
    Full,
    /// A longer interval, such as eight times the ordinary one.
    Relaxed,
}

/// Factor by which the interval and the maximal age of a relaxed metric are longer. A change of it is still seen within
/// eight polls.
pub const RELAXED_FACTOR: f64 = 8.0;

/// The utility of each metric of a profile.
#[derive(Clone, Debug)]
pub struct Utility {
    metrics: Vec<Metric>,
}

#[derive(Clone, Copy, Debug)]
struct Metric {
    utility: f64,
    evaluations: u32,
    collection: Collection,
}

impl Utility {
    pub(crate) fn new(metrics: usize) -> Self {
        let metric = Metric { utility: 1.0, evaluations: 0, collection: Collection::Full };
        Self { metrics: vec![metric; metrics] }
    }

    /// Returns the utility of a metric, 0 to 1; 1 before the first evaluation and for an index out of range.
    pub fn of(&self, metric: usize) -> f64 {
        self.metrics.get(metric).map_or(1.0, |m| m.utility)
    }

    /// Returns the collection that a metric needs.
    pub fn collection(&self, metric: usize) -> Collection {
        self.metrics.get(metric).map_or(Collection::Full, |m| m.collection)
    }

    /// Collects every metric in full again, as after a change of the application.
    pub fn restore(&mut self) {
        *self = Self::new(self.metrics.len());
    }

    /// Evaluates the metrics in turn: `scores` has the scores, `part` the part of a metric in the score of a candidate,
    /// `sharpness` the exponent from scores to weights.
    pub(crate) fn evaluate(
        &mut self,
        scores: &[f64],
        part: impl Fn(usize, usize) -> f64,
        sharpness: f64,
    ) {
        let with = weights(scores.iter().copied(), sharpness);
        for (at, metric) in self.metrics.iter_mut().enumerate() {
            let scores = scores.iter().enumerate().map(|(row, score)| score - part(row, at));
            let without = weights(scores, sharpness);
            let differences = with.iter().zip(&without).map(|(a, b)| (a - b).abs());
            metric.take(differences.sum::<f64>() / 2.0);
        }
    }
}

impl Metric {
    fn take(&mut self, utility: f64) {
        self.evaluations = self.evaluations.saturating_add(1);
        let share = match self.evaluations {
            1 => 1.0,
            _ if utility > self.utility => RISING,
            _ => FALLING,
        };
        self.utility += (utility - self.utility) * share;
        if self.utility >= RESTORE_FROM {
            self.collection = Collection::Full;
        } else if self.utility < RELAX_BELOW && self.evaluations >= ENOUGH {
            self.collection = Collection::Relaxed;
        }
    }
}

/// Returns weights that sum to 1: a power of each score's distance from the best.
pub(crate) fn weights(scores: impl Iterator<Item = f64>, sharpness: f64) -> Vec<f64> {
    let mut weights: Vec<f64> = scores.map(|s| weight(s, sharpness)).collect();
    let sum: f64 = weights.iter().sum();
    if sum > 0.0 {
        for weight in &mut weights {
            *weight /= sum;
        }
    }
    weights
}

#[inline]
pub(crate) fn weight(score: f64, sharpness: f64) -> f64 {
    let base = 1.0 / (1.0 + score.max(0.0));
    // The default needs no power.
    if sharpness == 2.0 { base * base } else { base.powf(sharpness) }
}
