//! The time over which the rate of a fact is computed: the last interval of its sensor.

use std::time::Duration;

use skopos_model::{Sample, Timestamp};
use skopos_shm::Vertex;

use crate::data::Fact;
use crate::rate::Growth;

/// The least time over which a rate is computed; longer intervals of a sensor replace it.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// The time over which the rate of a fact is computed.
pub(crate) struct Window {
    /// True if the value has not changed in this time.
    pub is_quiet: bool,
    interval: Option<Duration>,
    length: Duration,
    from: Timestamp,
    to: Timestamp,
}

impl Window {
    /// The window that ends with the last poll of the fact's source.
    pub(crate) fn of(fact: &Fact, interval: Option<Duration>) -> Self {
        let length = interval.unwrap_or_default().max(RATE_WINDOW);
        let to = fact.checked_at;
        // Polls come early and late: the poll before the last may be a little older than the window.
        let from = to.saturating_sub(length + length / 4);
        Self { is_quiet: fact.since < from, interval, length, from, to }
    }

    /// The samples in this time, and the sample before it if the ring reaches back that far.
    pub(crate) fn samples(&self, vertex: &Vertex) -> Option<Vec<Sample>> {
        let mut samples: Vec<Sample> = vertex.as_of(self.from).ok().flatten().into_iter().collect();
        let after = Timestamp::from_nanos(self.from.as_nanos().saturating_add(1));
        samples.extend(vertex.range(after..=self.to).ok()?.samples);
        Some(samples)
    }

    /// The growth per second of samples in this time.
    pub(crate) fn rate(&self, samples: &[(i64, f64)]) -> Option<f64> {
        Growth::new(samples, self.to.as_nanos(), self.interval).lately(self.length)
    }
}
