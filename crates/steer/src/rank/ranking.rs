//! The result of a ranking, and the explanation of its scores.

use std::time::Duration;

use skopos_model::Timestamp;

use crate::rank::trust::Fault;

/// The number of parts of a score beside those of its metrics.
pub(crate) const EXTRAS: [&str; 4] = ["behind the front", "unknown", "contradicted", "held"];
pub(crate) const LAYER: usize = 0;
pub(crate) const UNKNOWN: usize = 1;
pub(crate) const CONTRADICTED: usize = 2;
pub(crate) const HELD: usize = 3;
/// Most reasons that [`Ranking::reasons`] gives.
pub const MAX_REASONS: usize = 3;

/// The basis of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Scores.
    Scores,
    /// The order of the caller, with equal weights, because no candidate has a recent value.
    Native,
}

/// The standing of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its values are known.
    Known,
    /// It changes between good and bad, and counts as bad until it stays good.
    Flapping,
    /// Its reports contradict the measurements of peers, which count instead.
    Contradicted,
    /// No recent value is known; it has a share of the exploration.
    Unknown,
    /// A value that the profile requires is stale; its weight is zero.
    Excluded,
}

/// The measurements behind a score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence {
    /// Mean trust of the values by the weights of their metrics: 1 if all are fresh, 0 if all are missing.
    pub trust: f64,
    /// Fewest samples behind a value that counts.
    pub samples: u32,
    /// Age of the oldest value that counts; [`Duration::MAX`] if there is no value.
    pub age: Duration,
}

/// A ranked candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Index of the candidate in the call.
    pub candidate: usize,
    /// Share of requests by weighted choice; all weights sum to 1.
    pub weight: f64,
    /// Times worse than the best value, summed over the metrics by weight: 0 for the best in everything, 1 for twice as
    /// bad. It is the sum of the parts of [`Ranking::explain`], in their order.
    pub score: f64,
    /// The measurements behind the score.
    pub confidence: Confidence,
    /// The standing.
    pub state: State,
}

/// A part of a score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contribution<'a> {
    /// The name of a metric, or of a rule such as `unknown`.
    pub name: &'a str,
    /// The part of the score. The rule `held` can be negative.
    pub part: f64,
    /// The value, if it counts.
    pub value: Option<f64>,
    /// The fault of the value.
    pub fault: Option<Fault>,
}

/// Candidates from the best to the worst.
#[derive(Clone, Debug)]
pub struct Ranking {
    pub(crate) at: Timestamp,
    pub(crate) basis: Basis,
    pub(crate) entries: Vec<Ranked>,
    pub(crate) metrics: Vec<Box<str>>,
    /// Rows of candidates in the order of the call: parts of metrics, then [`EXTRAS`].
    pub(crate) parts: Vec<f64>,
    /// Rows of candidates: the checked value and its fault.
    pub(crate) values: Vec<(Option<f64>, Option<Fault>)>,
}

impl Ranking {
    /// Returns the time of the ranking.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns the basis of the order.
    pub fn basis(&self) -> Basis {
        self.basis
    }

    /// Returns the candidates from the best to the worst.
    pub fn entries(&self) -> &[Ranked] {
        &self.entries
    }

    /// Returns the parts of the score of a candidate by its index in the call, in the order in which they sum to the
    /// score exactly; empty for an index out of range.
    pub fn explain(&self, candidate: usize) -> Vec<Contribution<'_>> {
        let width = self.metrics.len() + EXTRAS.len();
        let Some(row) = self.parts.chunks_exact(width).nth(candidate) else { return Vec::new() };
        let values = &self.values[candidate * self.metrics.len()..];
        let extras = || std::iter::repeat(&(None, None));
        let names = self.metrics.iter().map(AsRef::as_ref).chain(EXTRAS);
        let values = values[..self.metrics.len()].iter().chain(extras());
        names
            .zip(row)
            .zip(values)
            .map(|((name, part), (value, fault))| Contribution {
                name,
                part: *part,
                value: *value,
                fault: *fault,
            })
            .collect()
    }

    /// Returns the values of a candidate that count, by its index in the call, in the order of the metrics; `None` for a missing one.
    pub fn values(&self, candidate: usize) -> impl Iterator<Item = Option<f64>> + '_ {
        let row = self.values.chunks_exact(self.metrics.len().max(1)).nth(candidate);
        row.unwrap_or_default().iter().map(|(value, _)| *value)
    }

    /// Returns the largest positive parts of a score, at most [`MAX_REASONS`]: why the candidate is not better.
    pub fn reasons(&self, candidate: usize) -> Vec<Contribution<'_>> {
        let mut parts = self.explain(candidate);
        parts.retain(|c| c.part > 0.0);
        parts.sort_by(|a, b| b.part.total_cmp(&a.part));
        parts.truncate(MAX_REASONS);
        parts
    }
}
