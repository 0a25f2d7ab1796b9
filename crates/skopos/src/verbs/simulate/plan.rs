//! The settings of a simulation, and the counts of its work.

use skopos_wire::PlaneConfig;

/// The number of nodes and their behaviour.
#[derive(Clone, Debug)]
pub(crate) struct Simulation {
    pub(crate) nodes: usize,
    pub(crate) facts: usize,
    /// Polls of each node in a second.
    pub(crate) rate: f64,
    /// The share of facts that change between two polls.
    pub(crate) change: f64,
    /// Connections that the nodes share.
    pub(crate) sessions: usize,
    /// Prefix of the nodes' names.
    pub(crate) prefix: String,
    /// Nanoseconds by which the clocks of the nodes are ahead.
    pub(crate) ahead: i64,
    pub(crate) seed: u64,
    pub(crate) plane: PlaneConfig,
}

/// The counts of the work up to now.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct Counts {
    pub(crate) batches: u64,
    pub(crate) samples: u64,
    pub(crate) bytes: u64,
    /// Polls that were skipped because this process did not keep up.
    pub(crate) late: u64,
}
