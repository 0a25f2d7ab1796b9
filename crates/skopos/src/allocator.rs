//! The allocator of processes that run for long.

/// Lets the allocator return memory also while no thread asks for any. Other processes stay without its thread.
pub(crate) fn return_memory() {
    // Without the thread, memory returns with the next allocations.
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
}
