use std::fmt::Debug;
use std::time::Duration;

/// What a poll found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// When it was, on any clock that never steps.
    pub at: Duration,
    /// By how much the value differs from what was believed until this poll, in units of the
    /// tolerance: 0 is the same, 1 and more matters. Not a number if the poll found nothing.
    pub change: f64,
    /// The value, where there is one: a sensor of many facts has none.
    pub value: Option<f64>,
}

/// Decides how long to wait until the next poll.
pub trait Policy: Send + Debug {
    /// The name in configurations and results.
    fn name(&self) -> &'static str;

    /// Learns from a poll, and says how long to wait until the next.
    fn next(&mut self, found: &Finding) -> Duration;
}

/// The shortest and the longest interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The base rate: nothing is polled more often.
    pub min: Duration,
    /// How old the value of a metric that never changes may get.
    pub max: Duration,
}

impl Bounds {
    /// The interval nearest to `seconds` that is allowed; the shortest for what is no number.
    pub(crate) fn clamp(&self, seconds: f64) -> Duration {
        let min = self.min.as_secs_f64();
        // `max` takes the number if the other is none.
        let seconds = seconds.max(min).min(self.max.as_secs_f64());
        Duration::try_from_secs_f64(seconds).unwrap_or(self.min).clamp(self.min, self.max)
    }
}
