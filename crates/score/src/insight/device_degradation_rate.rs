//! Device degradation rate (Table 1, row 8): the health of a device relative to the blocks that it
//! has read and written in its life.
//!
//! ```text
//! DegradationRate = device_health / (total_blocks_read + total_blocks_written)
//! ```
//!
//! - `device_health`: row 5.
//! - the totals: the device's own counts over its life, in logical blocks. The kernel's counters
//!   start at zero when the machine starts, so they are not a substitute.
//!
//! The unit is health per block, as printed. The rate falls while a device is used, and faster if
//! blocks fail: of two devices, the one with the higher rate has more of its life left. The insight
//! is unknown for a device that does not count the data that it moves, and for a device that has
//! moved no data yet.

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
        InputSpec::needed("health", FactSelector::Own(&insight::DEVICE_HEALTH_RATIO)),
        InputSpec::needed("read_bytes", FactSelector::Own(&smart::DATA_READ_BYTES_TOTAL)),
        InputSpec::needed("written_bytes", FactSelector::Own(&smart::DATA_WRITTEN_BYTES_TOTAL)),
        InputSpec::needed("block_bytes", FactSelector::Own(&smart::BLOCK_BYTES)),
    ],
    compute,
};

fn compute(_: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let bytes = inputs.number(1)? + inputs.number(2)?;
    let blocks = quotient(bytes, inputs.number(3)?, "the device reports a block size of zero")?;
    let unused = "the device has not read or written any data in its life";
    number(quotient(inputs.number(0)?, blocks, unused)?)
}
