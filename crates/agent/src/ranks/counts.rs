//! The counts of a profile.

/// Numbers since the start of the agent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProfileCounts {
    /// Values of peers that were left out.
    pub values_refused: u64,
    /// Outcomes that were taken.
    pub outcomes: u64,
    /// Outcomes that were refused.
    pub outcomes_refused: u64,
    /// Outcomes that were recorded.
    pub recorded: u64,
    /// Outcomes that were not.
    pub left_out: u64,
    /// Reads and writes of the file of learned weights that failed.
    pub weights_not_kept: u64,
}
