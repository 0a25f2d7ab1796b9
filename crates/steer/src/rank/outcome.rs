//! Outcomes of requests, which callers report so that weights are learned.

use crate::error::Error;
use crate::rank::limits::MAX_OUTCOME_SECONDS;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome<'a> {
    /// The candidate that served the request.
    pub candidate: &'a str,
    /// Its latency in seconds, or the time until it failed.
    pub seconds: f64,
    /// Whether the request failed.
    pub failed: bool,
}

/// The cost of a good request: a slow estimate of the tenth percentile of the latency.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reference {
    good: Option<f64>,
}

/// The percentile of a good request.
const GOOD: f64 = 0.1;
/// Relative step of the estimate with each outcome: it follows a change of ten times within a few hundred outcomes.
const STEP: f64 = 0.05;
/// Smallest cost of a good request: a nanosecond.
const SMALLEST: f64 = 1e-9;

impl Reference {
    /// Goes on from the cost of a good request in seconds, if one is known.
    pub(crate) fn new(good: Option<f64>) -> Result<Self, Error> {
        match good.is_none_or(|good| good.is_finite() && good >= 0.0) {
            true => Ok(Self { good }),
            false => Err(Error::Experience("the cost of a good request is out of range")),
        }
    }

    /// Returns the cost of a good request in seconds, if one is known.
    pub(crate) fn good_seconds(&self) -> Option<f64> {
        self.good
    }

    /// Returns the cost relative to a good request: 0 for a good one, 0.5 for twice its time, 1 for a failure.
    pub(crate) fn relative(&mut self, outcome: &Outcome<'_>) -> Result<f64, Error> {
        let seconds = outcome.seconds;
        if !(0.0..=MAX_OUTCOME_SECONDS).contains(&seconds) {
            let candidate = outcome.candidate.to_owned();
            return Err(Error::Cost { candidate, cost: seconds });
        }
        if outcome.failed {
            return Ok(1.0);
        }
        let seconds = seconds.max(SMALLEST);
        let good = self.good.get_or_insert(seconds);
        // Stochastic approximation of a quantile (Robbins and Monro), in proportion to the estimate.
        *good *= if seconds < *good { 1.0 - STEP * (1.0 - GOOD) } else { 1.0 + STEP * GOOD };
        let ratio = seconds / good.max(SMALLEST);
        Ok((1.0 - 1.0 / ratio.max(1.0)).clamp(0.0, 1.0))
    }
}
