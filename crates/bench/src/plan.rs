//! The length of the measurements.

use std::time::Duration;

/// The length of the measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of turns of Skopos and of each peer.
    pub(crate) rounds: usize,
    /// The length of a turn.
    pub(crate) slice: Duration,
    /// The window in which an agent is measured.
    pub(crate) window: Duration,
    /// Time that an adaptive agent learns before its window.
    pub(crate) settle: Duration,
    /// Number of pairs of runs of an application, with and without the agent.
    pub(crate) pairs: usize,
    /// The time of a run of that application.
    pub(crate) work: Duration,
    /// True for a short run, which finds the order of magnitude.
    pub(crate) is_short: bool,
    /// True if progress is shown on stderr.
    pub(crate) talk: bool,
}

impl Plan {
    pub(crate) fn new(is_quick: bool, seconds_of_slice: Option<f64>, talk: bool) -> Self {
        let seconds = |s: f64| Duration::try_from_secs_f64(s).unwrap_or(Duration::from_secs(1));
        let full = Self {
            rounds: 5,
            slice: seconds(0.5),
            window: seconds(60.0),
            settle: seconds(60.0),
            pairs: 10,
            work: seconds(5.0),
            is_short: false,
            talk,
        };
        let quick = Self {
            rounds: 2,
            slice: seconds(0.15),
            window: seconds(10.0),
            settle: seconds(5.0),
            pairs: 3,
            work: seconds(1.0),
            is_short: true,
            talk,
        };
        match seconds_of_slice.map(seconds) {
            Some(s) => Self { rounds: 1, slice: s, window: s, settle: s, pairs: 0, ..quick },
            None if is_quick => quick,
            None => full,
        }
    }

    /// Shows progress.
    pub(crate) fn say(&self, what: &str) {
        if self.talk {
            skopos_term::tell(what);
        }
    }
}
