use std::time::Duration;

use super::{Finding, Policy};

/// Always uses the same interval, whatever the polls find.
#[derive(Clone, Debug)]
pub struct Fixed {
    interval: Duration,
}

impl Fixed {
    /// Creates a policy that polls every `interval`.
    pub fn new(interval: Duration) -> Self {
        Self { interval }
    }
}

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn next(&mut self, _: &Finding) -> Duration {
        self.interval
    }
}
