//! The numbers of the storage, which are facts of the hub.

use std::sync::atomic::{AtomicU64, Ordering};

use skopos_model::schema::{Metric, self_jobs as metrics};
use skopos_model::unpoisoned;

use super::counts::Counts;
use super::shared::Shared;

/// Returns the numbers of a storage with their metrics, always in the same order; zeros if none is open.
pub(super) fn numbers(of: Option<(&Shared, u64)>) -> [(&'static Metric, u64); 18] {
    let (shared, dropped_reads) = of.unzip();
    let count = |of: fn(&Counts) -> &AtomicU64| {
        shared.map_or(0, |shared| of(&shared.counts).load(Ordering::Relaxed))
    };
    let (open, log_bytes, torn) = shared.map_or((0, 0, 0), |shared| {
        let intake = shared.intake();
        (intake.jobs().len() as u64, intake.log_bytes(), intake.damaged().len() as u64)
    });
    let (segments, _, segment_bytes) = shared.map_or((0, 0, 0), |shared| shared.lts.size());
    let damaged = shared.map_or(0, |shared| shared.lts.damaged().len() as u64);
    let troubles = shared.map_or(0, |shared| unpoisoned(shared.troubles.lock()).all().count());
    let (replicated, behind, restored) =
        shared.map_or((0, 0, 0), |shared| shared.replication.numbers(&shared.intake));
    [
        (&metrics::RECORDS_TOTAL, count(|counts| &counts.records)),
        (&metrics::DUPLICATES_TOTAL, count(|counts| &counts.duplicates)),
        (&metrics::REFUSED_TOTAL, count(|counts| &counts.refused)),
        (&metrics::DELAYED_TOTAL, count(|counts| &counts.delayed)),
        (&metrics::HELD_BACK_TOTAL, count(|counts| &counts.held_back)),
        (&metrics::TURNS_TOTAL, count(|counts| &counts.turns)),
        (&metrics::WAITING_BYTES, count(|counts| &counts.waiting)),
        (&metrics::OPEN, open),
        (&metrics::LOG_BYTES, log_bytes),
        (&metrics::SEGMENTS, segments as u64),
        (&metrics::SEGMENT_BYTES, segment_bytes),
        (&metrics::REMOVED_PARTS_TOTAL, count(|counts| &counts.removed_parts)),
        (&metrics::DAMAGED, torn + damaged),
        (&metrics::TROUBLES, troubles as u64),
        (&metrics::DROPPED_READS_TOTAL, dropped_reads.unwrap_or(0)),
        (&metrics::REPLICATED_TOTAL, replicated),
        (&metrics::REPLICA_BEHIND_BYTES, behind),
        (&metrics::RESTORED_TOTAL, restored),
    ]
}
