use std::fmt::Debug;
use std::time::Duration;

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The time of the poll, on any clock that never steps.
    pub at: Duration,
    /// The difference between the value and the belief of readers before this poll, in units of the
    /// tolerance: 0 is the same, 1 and more is significant. NaN if the poll found no value.
    pub change: f64,
    /// The value, if there is exactly one: `None` for a sensor with many facts.
    pub value: Option<f64>,
}

/// Decides the time until the next poll.
pub trait Policy: Send + Debug {
    /// Returns the name in configurations and results.
    fn name(&self) -> &'static str;

    /// Learns from a poll and returns the time until the next.
    fn next(&mut self, found: &Finding) -> Duration;
}

/// The shortest and the longest interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The base interval: no sensor is polled more often.
    pub min: Duration,
    /// The longest interval: the greatest age of a value that never changes.
    pub max: Duration,
}

impl Bounds {
    /// Returns the allowed interval nearest to `seconds`; the shortest for NaN.
    #[inline]
    pub(crate) fn clamp(&self, seconds: f64) -> Duration {
        let min = self.min.as_secs_f64();
        // `max` returns the other number if one is NaN.
        let seconds = seconds.max(min).min(self.max.as_secs_f64());
        Duration::try_from_secs_f64(seconds).unwrap_or(self.min).clamp(self.min, self.max)
    }
}
