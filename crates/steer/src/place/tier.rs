//! The view of a tier that a policy has.

use std::time::Duration;

/// A value with the time since the last poll of its source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aged {
    /// The value, in the unit of its field.
    pub value: f64,
    /// The time since the last poll.
    pub age: Duration,
}

/// Values of a tier as facts and insights give them. Each of them may be missing, old or wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Telemetry {
    /// Bytes that users can still write: the insight `tier_remaining_capacity_bytes`.
    pub remaining_bytes: Option<Aged>,
    /// The most bytes that the tier reads in a second, by its calibration or by declaration.
    pub read_bytes_per_second: Option<Aged>,
    /// The most bytes that the tier writes in a second, by its calibration or by declaration.
    pub write_bytes_per_second: Option<Aged>,
    /// Seconds of an access without a queue, by its calibration.
    pub access_seconds: Option<Aged>,
    /// Share of the bandwidth in use, by all programs: the insight `interference_factor_ratio`.
    pub interference_ratio: Option<Aged>,
    /// Share of the time with a request in flight, of all programs: the insight `device_load_busy_ratio`.
    pub busy_ratio: Option<Aged>,
    /// Share of the blocks that are not bad: the insight `device_health_ratio`.
    pub health_ratio: Option<Aged>,
    /// Copies of each datum that the device is good for: the insight `device_fault_tolerance`.
    pub fault_tolerance: Option<Aged>,
    /// The time over which the two shares of load are means, which ends at their age.
    pub window: Duration,
}

impl Telemetry {
    /// Returns the same values at an age that is `by` greater.
    pub(crate) fn older(self, by: Duration) -> Self {
        let older = |value: Aged| Aged { age: value.age.saturating_add(by), ..value };
        Self {
            remaining_bytes: self.remaining_bytes.map(older),
            read_bytes_per_second: self.read_bytes_per_second.map(older),
            write_bytes_per_second: self.write_bytes_per_second.map(older),
            access_seconds: self.access_seconds.map(older),
            interference_ratio: self.interference_ratio.map(older),
            busy_ratio: self.busy_ratio.map(older),
            health_ratio: self.health_ratio.map(older),
            fault_tolerance: self.fault_tolerance.map(older),
            window: self.window,
        }
    }
}

/// Values of a tier that the program knows without telemetry, because they are its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Own {
    /// Bytes that the program may have on the tier.
    pub capacity_bytes: u64,
    /// Bytes of `capacity_bytes` that are neither used nor reserved.
    pub room_bytes: u64,
    /// Bytes of cached copies on the tier that no reader is known to want.
    pub evictable_bytes: u64,
    /// Bytes of cached copies on the tier that readers are known to want. Their reads are to come.
    pub awaited_bytes: u64,
    /// Bytes of transfers in flight, which a new transfer shares the tier with.
    pub queued_bytes: u64,
    /// Bytes of writes for which the tier is chosen, and which have not begun: they may wait for room.
    pub chosen_bytes: u64,
    /// Bytes that were reserved on the tier and were not yet complete when `remaining_bytes` was polled.
    pub unseen_bytes: u64,
    /// The end of the window of the telemetry, as a time since any fixed start.
    pub polled_at: Duration,
    /// Bytes that the program read in a second, over the window of the telemetry.
    pub read_bytes_per_second: f64,
    /// Bytes that the program wrote in a second, over the window of the telemetry.
    pub written_bytes_per_second: f64,
    /// Share of the window of the telemetry with a transfer of the program in flight.
    pub busy_ratio: f64,
    /// True after a failure of the tier, until it is tried again.
    pub is_failed: bool,
}

/// A tier as a policy sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tier {
    /// Values of the program itself.
    pub own: Own,
    /// Values of facts and insights.
    pub telemetry: Telemetry,
}
