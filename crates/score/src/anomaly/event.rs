use skopos_model::{Timestamp, Topic};

/// A value became unusual, or usual again.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The topic of the value.
    pub topic: Topic,
    /// The name of the rule.
    pub rule: String,
    /// The name of the detector: one of [`DETECTORS`](super::DETECTORS).
    pub detector: &'static str,
    /// The time of the deciding sample.
    pub at: Timestamp,
    /// The time since which the state holds, as far as the detector can tell; never after `at`.
    pub since: Timestamp,
    /// The observed value, or for a counter its rate per second. For a change point, the mean since
    /// the change.
    pub came: f64,
    /// The expected value.
    pub expected: Expected,
    /// The distance from the expected value; see [`Finding::score`].
    pub score: f64,
    /// The new state.
    pub state: State,
    /// The number of changes of state since the last event that the limit on events held back.
    pub suppressed: u64,
}

/// The expectation of a detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The most likely value.
    pub value: f64,
    /// The lowest usual value; negative infinity without such a bound.
    pub low: f64,
    /// The highest usual value; infinity without such a bound.
    pub high: f64,
}

/// The state of a value under a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The value is unusual.
    Raised,
    /// The value is usual again.
    Cleared,
}

impl State {
    /// Returns the name: `raised` or `cleared`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Cleared => "cleared",
        }
    }
}

/// The basis of a judgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The observed value.
    pub came: f64,
    /// The expected value.
    pub expected: Expected,
    /// The distance from the expected value on one scale for all detectors: 0 is the expected
    /// value, 1 the bound at which a value becomes unusual, 2 twice that distance.
    pub score: f64,
    /// The time since which the state holds.
    pub since: Timestamp,
}
