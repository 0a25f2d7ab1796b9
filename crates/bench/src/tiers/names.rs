//! The names of the facts that the agent of the benchmark publishes, and the interval of its polls.

use std::time::Duration;

/// The node in topics.
pub(super) const NODE: &str = "bench";

/// Interval of the agent's polls of devices and file systems.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// Insights of the benchmark for each disk, and the counters of which they are the rates.
pub(super) const RATES: [(&str, &str); 2] = [
    ("read_bytes_per_second", "read_bytes_total"),
    ("written_bytes_per_second", "written_bytes_total"),
];
