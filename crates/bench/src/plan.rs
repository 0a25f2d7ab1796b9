//! How long a benchmark measures.

use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How often ours and the peer take turns.
    pub(crate) rounds: usize,
    /// One turn of one of them.
    pub(crate) slice: Duration,
    /// The agent's window.
    pub(crate) window: Duration,
    /// How long an agent that adapts to the machine learns before its window.
    pub(crate) settle: Duration,
    /// How often an application runs beside the agent and without it; 0 is not at all.
    pub(crate) pairs: usize,
    /// How long one run of that application takes.
    pub(crate) work: Duration,
    /// Whether an order of magnitude is enough.
    pub(crate) is_short: bool,
    /// Says on stderr what is being measured.
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

    /// Progress, for a person who waits.
    pub(crate) fn say(&self, what: &str) {
        if self.talk {
            skopos_term::tell(what);
        }
    }
}
