//! Counts of requests and answers that the programs of a session dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skopos_model::schema::{Metric, self_live};

/// The counts of a session. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct DropCounter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts([AtomicU64; Dropped::ALL.len()]);

/// A reason for a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// A request for a snapshot got no answer.
    SnapshotRequest,
    /// A follower was refused.
    Follower,
    /// A request for the node of a name got no answer.
    NameRequest,
    /// A request for a certificate got no answer.
    RenewalRequest,
    /// A question about the past got no answer.
    HistoryRequest,
    /// An answer about the past was too long.
    HistoryAnswer,
    /// A request to measure a topic got no answer.
    MeasureRequest,
    /// A request about records of jobs got no answer.
    Delivery,
}

impl Dropped {
    const ALL: [(Self, &'static Metric); 8] = [
        (Self::SnapshotRequest, &self_live::SNAPSHOT_REQUESTS_DROPPED_TOTAL),
        (Self::Follower, &self_live::FOLLOWERS_REFUSED_TOTAL),
        (Self::NameRequest, &self_live::NAME_REQUESTS_DROPPED_TOTAL),
        (Self::RenewalRequest, &self_live::RENEWAL_REQUESTS_DROPPED_TOTAL),
        (Self::HistoryRequest, &self_live::HISTORY_REQUESTS_DROPPED_TOTAL),
        (Self::HistoryAnswer, &self_live::HISTORY_ANSWERS_DROPPED_TOTAL),
        (Self::MeasureRequest, &self_live::MEASURE_REQUESTS_DROPPED_TOTAL),
        (Self::Delivery, &self_live::DELIVERIES_DROPPED_TOTAL),
    ];
}

impl DropCounter {
    /// Counts a dropped request or answer.
    pub(crate) fn count(&self, dropped: Dropped) {
        self.0.0[dropped as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns each number with the metric of its fact, always in the same order.
    pub fn numbers(&self) -> [(&'static Metric, u64); Dropped::ALL.len()] {
        Dropped::ALL.map(|(dropped, metric)| (metric, self.of(dropped)))
    }

    fn of(&self, dropped: Dropped) -> u64 {
        self.0.0[dropped as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_count() {
        let drops = DropCounter::default();
        for (times, (dropped, _)) in (1..).zip(Dropped::ALL) {
            (0..times).for_each(|_| drops.count(dropped));
        }
        assert_eq!(drops.numbers().map(|(_, number)| number), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
