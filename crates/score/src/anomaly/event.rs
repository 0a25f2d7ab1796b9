use skopos_model::{Timestamp, Topic};

/// Something became unusual, or usual again.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Whose value it is.
    pub topic: Topic,
    /// The name of the rule.
    pub rule: String,
    /// The name of the detector: `threshold`, `robust-z`, `change-point` or `extreme`.
    pub detector: &'static str,
    /// The time of the sample that decided.
    pub at: Timestamp,
    /// Since when it has been so, as far as the detector can tell; never after `at`.
    pub since: Timestamp,
    /// What came: the value, or of a counter its rate per second. Of a change point the mean since
    /// the change.
    pub came: f64,
    /// What was expected in its place.
    pub expected: Expected,
    /// How far off it is; see [`Finding::score`].
    pub score: f64,
    /// What it became.
    pub state: State,
    /// Changes of state since the event before that were not told, lest they flood.
    pub suppressed: u64,
}

/// What a detector expects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The likeliest value.
    pub value: f64,
    /// The lowest that is still usual; negative infinity if there is no such bound.
    pub low: f64,
    /// The highest that is still usual; infinity if there is no such bound.
    pub high: f64,
}

/// Unusual or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is unusual now.
    Raised,
    /// It is usual again.
    Cleared,
}

impl State {
    /// The name: `raised` or `cleared`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Cleared => "cleared",
        }
    }
}

/// What a judgement rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// What came.
    pub came: f64,
    /// What was expected.
    pub expected: Expected,
    /// How far off it is, in one measure for all detectors: 0 is the expected value, 1 the bound at
    /// which it becomes unusual, 2 twice as far.
    pub score: f64,
    /// Since when it has been so.
    pub since: Timestamp,
}
