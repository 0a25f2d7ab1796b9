//! Counts of the storage.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the storage was opened.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) records: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) delayed: AtomicU64,
    /// Times that a producer had to wait because its caller had its share of the room.
    pub(super) held_back: AtomicU64,
    /// Turns of streams.
    pub(super) turns: AtomicU64,
    /// Bytes of streams that wait for their turns.
    pub(super) waiting: AtomicU64,
    pub(super) removed_parts: AtomicU64,
}

/// Adds to a count.
pub(super) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}
