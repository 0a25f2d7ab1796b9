//! Detects values above or below a level for some time.
//!
//! A value is unusual once it has been beyond `above` (or `below`) at every sample for the time
//! `for`; it is usual again once it reaches `clear`. Between the two levels the state stays, so a
//! value that swings about one of them causes one event and not hundreds.

use std::time::Duration;

use skopos_model::Timestamp;

use super::{Detector, Expected, Finding};

/// The unusual side of the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Values above the level.
    Above,
    /// Values below the level.
    Below,
}

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The unusual side of `level`.
    pub side: Side,
    /// The level beyond which a value is unusual.
    pub level: f64,
    /// The level at which a value is usual again: on the usual side of `level`, or equal to it.
    pub clear: f64,
    /// The time for which a value must be beyond `level`.
    pub hold: Duration,
}

/// The detector.
#[derive(Clone, Debug)]
pub struct Threshold {
    settings: Settings,
    beyond_since: Option<Timestamp>,
    since: Timestamp,
    latest: f64,
    raised: bool,
}

impl Threshold {
    /// Creates a detector without samples.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            beyond_since: None,
            since: Timestamp::default(),
            latest: settings.clear,
            raised: false,
        }
    }

    /// Returns the distance of `a` from `b` towards the unusual side.
    fn beyond(&self, a: f64, b: f64) -> f64 {
        match self.settings.side {
            Side::Above => a - b,
            Side::Below => b - a,
        }
    }
}

impl Detector for Threshold {
    fn take(&mut self, at: Timestamp, value: f64) -> bool {
        self.latest = value;
        if self.raised {
            if self.beyond(value, self.settings.clear) <= 0.0 {
                (self.raised, self.beyond_since, self.since) = (false, None, at);
            }
        } else if self.beyond(value, self.settings.level) > 0.0 {
            let since = *self.beyond_since.get_or_insert(at);
            if at.since(since) >= self.settings.hold {
                (self.raised, self.since) = (true, since);
            }
        } else {
            self.beyond_since = None;
        }
        self.raised
    }

    fn finding(&self) -> Finding {
        let Settings { side, level, clear, .. } = self.settings;
        let (low, high) = match side {
            Side::Above => (f64::NEG_INFINITY, level),
            Side::Below => (level, f64::INFINITY),
        };
        let room = self.beyond(level, clear);
        let score = if room > 0.0 {
            self.beyond(self.latest, clear) / room
        } else {
            // Without a distance between the levels, the level itself is the scale.
            1.0 + self.beyond(self.latest, level) / level.abs().max(1.0)
        };
        Finding {
            came: self.latest,
            expected: Expected { value: clear, low, high },
            score: score.max(0.0),
            since: self.since,
        }
    }
}
