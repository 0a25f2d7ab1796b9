//! Counts of an engine.

use std::time::Duration;

/// Counts since the start of an engine. Bytes are those of complete files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Files written, replicas not counted.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Replicas written, all copies counted.
    pub replicas: u64,
    /// Files read.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Files that were moved down to make room.
    pub flushes: u64,
    /// Their bytes.
    pub flushed_bytes: u64,
    /// Copies that were brought up.
    pub prefetches: u64,
    /// Their bytes.
    pub prefetched_bytes: u64,
    /// Cached copies that were removed to make room.
    pub evictions: u64,
    /// Evictions of copies that a reader was known to want.
    pub unread_evictions: u64,
    /// Replicas that were removed because a write had no room otherwise. A tier below has a copy of their files.
    pub retired: u64,
    /// Requests to bring a file up that had to wait, because no tier had room or was good for it, or it was being moved. Each
    /// try counts.
    pub deferred: u64,
    /// Writes that waited for room, reads that waited for a prefetch, and reads of a prefetched file that was evicted.
    pub stalls: u64,
    /// Time of these waits, summed over callers. For an evicted file, the time of its read from the tier below.
    pub stalled: Duration,
    /// Transfers that failed.
    pub failures: u64,
    /// Failures because a tier had no space left, although the engine had not used it up.
    pub full: u64,
    /// Decisions of the policy.
    pub decisions: u64,
    /// Time of these decisions, with reading the view: the cost of asking.
    pub asking: Duration,
    /// Values of the view that were NaN, infinite or negative.
    pub refused_values: u64,
    /// Files in `part` and `cache` that the start removed.
    pub removed_at_start: u64,
    /// Entries in the folders that are not files of an engine, which are left alone, and copies whose length differs from that
    /// on a faster tier, which are not read and are removed with their file.
    pub foreign: u64,
}
