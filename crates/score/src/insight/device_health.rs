//! Device health (Table 1, row 5): the share of a device's blocks that still work.
//!
//! ```text
//! DeviceHealth = 1 - NumBadBlocks / TotalNumBlocks
//! ```
//!
//! - `NumBadBlocks`: the blocks that the device itself counts as failed (`bad_blocks` of `smart`
//!   says what each kind of device counts).
//! - `TotalNumBlocks`: the logical blocks of the device.
//!
//! The insight is a ratio: 1 is a device without a bad block. Even a dying disk of 10^10 blocks is
//! above 0.999, so compare devices and watch the ratio fall; the device's own judgement is the fact
//! `smart/*/passed`. The insight is unknown if a device does not count bad blocks, or if reading
//! the count is not permitted.

use skopos_model::schema::{insight, smart};

use super::definition::{number, quotient};
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::DEVICE_HEALTH_RATIO,
    row: 5,
    name: "device health",
    formula: "1 - bad_blocks / total_blocks",
    source: "Apollo, Table 1, row 5: 1 - NumBadBlocks / TotalNumBlocks",
    instances: Instances::Devices,
    inputs: &[
        InputSpec::needed("bad_blocks", FactSelector::Own(&smart::BAD_BLOCKS)),
        InputSpec::needed("total_blocks", FactSelector::Own(&smart::TOTAL_BLOCKS)),
    ],
    compute,
};

fn compute(_: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let (bad, total) = (inputs.number(0)?, inputs.number(1)?);
    if bad > total {
        return Err(Unknown::new(format!("{bad} bad blocks of {total} blocks are impossible")));
    }
    let bad = quotient(bad, total, "the device reports that it has no blocks")?;
    number(1.0 - bad)
}
