//! Short ways to make tiers.

use std::time::Duration;

use skopos_steer::place::{Aged, Informed, Own, Policy, RoundRobin, Telemetry, Tier};

/// A fresh value.
pub(crate) fn fresh(value: f64) -> Option<Aged> {
    Some(Aged { value, age: Duration::ZERO })
}

/// A tier with room for `room` of 1000 bytes, of which telemetry says nothing.
pub(crate) fn unknown(room: u64) -> Tier {
    let own = Own { capacity_bytes: 1000, room_bytes: room, ..Own::default() };
    Tier { own, telemetry: Telemetry::default() }
}

/// A tier of known speed, idle, with the room that its own count says.
pub(crate) fn known(room: u64, bytes_per_second: f64) -> Tier {
    let telemetry = Telemetry {
        remaining_bytes: fresh(room as f64),
        read_bytes_per_second: fresh(bytes_per_second),
        write_bytes_per_second: fresh(bytes_per_second),
        access_seconds: fresh(0.0),
        interference_ratio: fresh(0.0),
        busy_ratio: fresh(0.0),
        health_ratio: fresh(1.0),
        fault_tolerance: fresh(1.0),
        window: Duration::from_millis(100),
    };
    Tier { telemetry, ..unknown(room) }
}

/// Both policies, by name.
pub(crate) fn policies() -> [(&'static str, Box<dyn Policy>); 2] {
    [("round robin", Box::new(RoundRobin::new())), ("informed", Box::new(Informed::new()))]
}
