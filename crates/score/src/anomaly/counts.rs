/// The number of samples, detectors and events that were ignored or held back since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples that are NaN, infinite, or larger than [`LARGEST_VALUE`](super::LARGEST_VALUE).
    pub not_finite: u64,
    /// Samples whose time is not after the time of the one before.
    pub backwards: u64,
    /// Counters that fell.
    pub resets: u64,
    /// Detectors that were refused because their memory was full (`MAX_STATE_BYTES`).
    pub refused: u64,
    /// Changes between unusual and usual. The difference to `events` was held back.
    pub changes: u64,
    /// Emitted events.
    pub events: u64,
}
