//! Counts of the storage.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the storage was opened.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) records: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) delayed: AtomicU64,
    pub(super) removed_parts: AtomicU64,
}

/// Adds to a count.
pub(super) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}
