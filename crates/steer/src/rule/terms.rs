//! The terms of a rule: its times and its limit on actions.

use std::time::Duration;

use crate::error::Error;

/// Longest duration of a rule: a month. Longer ones are mistakes of the unit.
pub const MAX_DURATION: Duration = Duration::from_secs(31 * 86_400);

/// Largest number of actions in a period. A tracker keeps the time of each.
pub const MAX_MOST: u32 = 1000;

/// The terms of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time for which a subject must be in every answer before it fires.
    pub hold: Duration,
    /// Time for which a firing subject must be absent before it is resolved.
    pub keep: Duration,
    /// Time after which the action of a subject that still fires is due again, if the last one is done; `None` for never.
    pub repeat: Option<Duration>,
    /// Largest number of actions in `per`.
    pub most: u32,
    /// The period of `most`.
    pub per: Duration,
    /// Pause before an action that failed is tried again. It doubles with each further failure of the subject, up to an hour.
    pub pause: Duration,
    /// Longest time between two answers that count as one after the other. After a longer gap, pending subjects begin
    /// anew.
    pub gap: Duration,
}

/// At most 20 actions an hour, at once, and without repetition. An action that failed is tried again after a minute: a server
/// that restarts is back.
impl Default for Terms {
    fn default() -> Self {
        Self {
            hold: Duration::ZERO,
            keep: Duration::ZERO,
            repeat: None,
            most: 20,
            per: Duration::from_secs(3600),
            pause: Duration::from_secs(60),
            gap: Duration::from_secs(60),
        }
    }
}

impl Terms {
    /// Checks the terms.
    ///
    /// # Errors
    /// A duration is longer than [`MAX_DURATION`], the period, the repetition or the pause is zero, or `most` is not from 1 to
    /// [`MAX_MOST`].
    pub fn check(&self) -> Result<(), Error> {
        let range = |entry: &'static str, value: f64, range: &'static str| {
            Err(Error::Term { entry, value, range })
        };
        let times = [("for", self.hold), ("keep", self.keep), ("gap", self.gap)];
        if let Some((entry, time)) = times.into_iter().find(|(_, time)| *time > MAX_DURATION) {
            return range(entry, time.as_secs_f64(), "at most 31 days");
        }
        let periods =
            [("per", Some(self.per)), ("repeat", self.repeat), ("pause", Some(self.pause))];
        for (entry, time) in periods.into_iter().filter_map(|(entry, time)| Some((entry, time?))) {
            if time.is_zero() || time > MAX_DURATION {
                return range(entry, time.as_secs_f64(), "above 0 and at most 31 days");
            }
        }
        match (1..=MAX_MOST).contains(&self.most) {
            true => Ok(()),
            false => range("at_most", f64::from(self.most), "from 1 to 1000"),
        }
    }
}
