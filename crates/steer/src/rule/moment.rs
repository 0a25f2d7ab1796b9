//! A moment on two clocks.

use skopos_model::Timestamp;

/// A moment, on a clock that shows UNIX time and on one that is never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// UNIX time, which events have. It may be set back.
    pub at: Timestamp,
    /// Time on a clock that is never set, by which durations are measured. Its zero is any moment; earlier times are negative.
    pub steady: Timestamp,
}

impl Moment {
    /// Returns a moment for callers whose UNIX time is never set, such as a replay.
    pub fn on_one_clock(at: Timestamp) -> Self {
        Self { at, steady: at }
    }

    /// Returns the moment of an earlier UNIX time. A time that is later than this moment, because the clock was set back since,
    /// has the steady time of this moment.
    #[must_use]
    pub fn earlier(self, at: Timestamp) -> Self {
        Self { at, steady: self.steady.saturating_sub(self.at.since(at)) }
    }
}
