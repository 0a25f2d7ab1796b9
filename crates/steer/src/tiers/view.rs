//! The view of the tiers that an engine asks for telemetry.

use std::time::Duration;

use crate::place::{Aged, Telemetry};

/// Gives an engine the telemetry of its tiers.
pub trait View: Send + Sync {
    /// Sets the values of each tier, in the order of the tiers. All of them are missing before; a value that is not known
    /// stays so. It is called for a decision whose last values are older than [`KEPT`](crate::tiers::KEPT), so it must not
    /// wait.
    fn look(&self, into: &mut [Telemetry]);
}

/// A view of declared speeds, in bytes a second, in the order of the tiers. A tier without an entry is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// The speed of each tier, for reads and for writes.
    pub bytes_per_second: Vec<Option<f64>>,
}

impl View for Declared {
    fn look(&self, into: &mut [Telemetry]) {
        for (telemetry, speed) in into.iter_mut().zip(&self.bytes_per_second) {
            let speed = speed.map(|value| Aged { value, age: Duration::ZERO });
            telemetry.read_bytes_per_second = speed;
            telemetry.write_bytes_per_second = speed;
        }
    }
}
