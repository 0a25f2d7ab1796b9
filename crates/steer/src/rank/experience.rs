//! The state of learned weights, which outlives a ranker.

use serde::{Deserialize, Serialize};

/// The state of learning from outcomes: [`Ranker::restore`](crate::rank::Ranker::restore) goes on from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experience {
    /// The coefficient of each metric, in the order of the profile, then the base.
    pub coefficients: Vec<f64>,
    /// For each coefficient the sum of its squared gradients.
    pub squares: Vec<f64>,
    /// Number of outcomes.
    pub outcomes: f64,
    /// Cost of a good request in seconds; `None` before the first outcome.
    pub good_seconds: Option<f64>,
}
