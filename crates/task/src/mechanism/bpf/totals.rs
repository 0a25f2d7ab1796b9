//! The totals that the programs count in the kernel.

/// Totals of the task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) processes_total: u64,
    pub(super) processes_max: u64,
    pub(super) threads_max: u64,
    pub(super) threads_total: u64,
    /// Sums over exited threads, in bytes and nanoseconds.
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    pub(super) device_read_bytes: u64,
    pub(super) device_written_bytes: u64,
    pub(super) delay_nanos: u64,
    /// Number of exited threads that have not left their processors yet.
    pub(super) leaving: i64,
    /// Sums over threads that left their processors.
    pub(super) cpu_nanos: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) voluntary_switches: u64,
    pub(super) involuntary_switches: u64,
    /// Number of records that the ring had no room for.
    pub(super) lost: u64,
    /// Number of processes that the table had no room for. They and their descendants are not in
    /// these totals.
    pub(super) unknown: u64,
}
