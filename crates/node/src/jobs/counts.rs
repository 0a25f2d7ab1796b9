//! Counts of what is delivered, which are facts of the node.

use std::sync::atomic::{AtomicU64, Ordering};

use skopos_model::schema::{Metric, self_delivery as metrics};

/// Counts since the agent started.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) jobs: AtomicU64,
    pub(super) acknowledged: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) waiting: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) left_out: AtomicU64,
    pub(super) damaged: AtomicU64,
}

impl Counts {
    /// Returns the numbers with their metrics, always in the same order.
    pub(super) fn numbers(&self) -> [(&'static Metric, u64); 8] {
        [
            (&metrics::JOBS, &self.jobs),
            (&metrics::ACKNOWLEDGED_TOTAL, &self.acknowledged),
            (&metrics::REFUSED_TOTAL, &self.refused),
            (&metrics::WAITING, &self.waiting),
            (&metrics::DROPPED_TOTAL, &self.dropped),
            (&metrics::LOST_TOTAL, &self.lost),
            (&metrics::LEFT_OUT_TOTAL, &self.left_out),
            (&metrics::DAMAGED_TOTAL, &self.damaged),
        ]
        .map(|(metric, number)| (metric, number.load(Ordering::Relaxed)))
    }
}

/// Adds to a count.
pub(super) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// Sets a gauge.
pub(super) fn set(gauge: &AtomicU64, number: u64) {
    gauge.store(number, Ordering::Relaxed);
}
