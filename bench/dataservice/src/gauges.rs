//! Numbers that the RPC layer keeps of itself while it works, for performance variables.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that changes.
#[derive(Default, Debug)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Replaces the number.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds to the number.
    pub fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    /// Subtracts from the number.
    pub fn take(&self, value: u64) {
        self.0.fetch_sub(value, Ordering::Relaxed);
    }

    /// Returns the number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The numbers of a process.
#[derive(Default, Debug)]
pub struct Gauges {
    /// Events that the last read of the completion queue got.
    pub completion_queue_read: Gauge,
    /// Events that it left in the queue.
    pub completion_queue_depth: Gauge,
    /// The most events of one read.
    pub completion_queue_limit: Gauge,
    /// Calls of this process that are not answered.
    pub in_flight_requests: Gauge,
    /// Inputs that were longer than the eager buffer.
    pub eager_overflows: Gauge,
    /// Messages that the server refused.
    pub refused_messages: Gauge,
}
