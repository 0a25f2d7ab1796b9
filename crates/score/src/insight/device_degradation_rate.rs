//! Device degradation rate (Table 1, row 8): the health of a device against the blocks that it has
//! read and written in its life.
//!
//! ```text
//! DegradationRate = device_health / (total_blocks_read + total_blocks_written)
//! ```
//!
//! - `device_health`: row 5.
//! - the totals: what the device itself has counted in its life, in logical blocks. The kernel's
//!   counters begin at its start, so they are no substitute.
//!
//! Health per block, as printed. It falls while a device is used, and falls faster where blocks go
//! bad: of two devices the one with the higher value has more of its life before it. Unknown where
//! the device does not count what it moves, and for one that has moved nothing yet.

use skopos_model::schema::{insight, smart};

use super::definition::{number, quotient};
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::DEVICE_DEGRADATION_RATE_RATIO_PER_BLOCK,
    row: 8,
    name: "device degradation rate",
    formula: "health / ((read_bytes + written_bytes) / block_bytes)",
    source: "Apollo, Table 1, row 8: device_health / (total_blocks_read + total_blocks_written)",
    instances: Instances::Devices,
    inputs: &[
        Wanted::needed("health", Which::Own(&insight::DEVICE_HEALTH_RATIO)),
        Wanted::needed("read_bytes", Which::Own(&smart::DATA_READ_BYTES_TOTAL)),
        Wanted::needed("written_bytes", Which::Own(&smart::DATA_WRITTEN_BYTES_TOTAL)),
        Wanted::needed("block_bytes", Which::Own(&smart::BLOCK_BYTES)),
    ],
    compute,
};

fn compute(_: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let bytes = inputs.number(1)? + inputs.number(2)?;
    let blocks =
        quotient(bytes, inputs.number(3)?, "the device says that its blocks have no size")?;
    let none = "the device has read and written nothing in its life";
    number(quotient(inputs.number(0)?, blocks, none)?)
}
