use std::time::Duration;

use skopos_model::Timestamp;

const MINUTE: Duration = Duration::from_secs(60);

/// A budget of events per minute: a token bucket that refills steadily and holds one minute's
/// tokens.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    per_minute: f64,
    left: f64,
    at: Timestamp,
}

impl Allowance {
    pub(super) fn new(per_minute: u32) -> Self {
        let per_minute = f64::from(per_minute);
        Self { per_minute, left: per_minute, at: Timestamp::default() }
    }

    /// Returns true if one more event is allowed at `now`.
    #[inline]
    pub(super) fn has(&mut self, now: Timestamp) -> bool {
        // Other publishers have other clocks. A clock that is far ahead must not stop the refill
        // for all others until they have caught up.
        if now > self.at || self.at.since(now) > MINUTE {
            let minutes = now.since(self.at).as_secs_f64() / MINUTE.as_secs_f64();
            self.left = (self.left + minutes * self.per_minute).min(self.per_minute);
            self.at = now;
        }
        self.left >= 1.0
    }

    /// Uses one token.
    #[inline]
    pub(super) fn spend(&mut self) {
        self.left -= 1.0;
    }
}
