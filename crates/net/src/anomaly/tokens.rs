use skopos_model::Timestamp;

/// A bucket of tokens that refills steadily and holds those of one second.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    per_second: f64,
    left: f64,
    at: Timestamp,
}

impl Tokens {
    pub(super) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, left: per_second, at: Timestamp::default() }
    }

    /// Returns true if a token is left at `now`. A clock that steps back starts a new second.
    pub(super) fn has(&mut self, now: Timestamp) -> bool {
        let passed = if now < self.at { 1.0 } else { now.since(self.at).as_secs_f64() };
        self.left = (self.left + passed * self.per_second).min(self.per_second);
        self.at = now;
        self.left >= 1.0
    }

    /// Uses a token.
    pub(super) fn spend(&mut self) {
        self.left -= 1.0;
    }
}
