use std::time::Duration;

/// Time that one step of the clock counts for, at most: a clock that is set years ahead must not make all history old. It is
/// longer than a part is without a sample on a node that runs. After a node was off for longer, its parts stay longer.
pub(super) const MAX_STEP: Duration = Duration::from_secs(86_400);

/// Limits of a folder of history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of all files together. The log may exceed it until the next seal.
    pub max_bytes: u64,
    /// The greatest age of a part's last sample. Older parts are removed.
    pub max_age: Duration,
    /// Age at which a log is sealed, if it is not full before.
    pub seal_every: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
        Self { max_bytes: 1 << 30, max_age: 30 * day, seal_every: hour }
    }
}
