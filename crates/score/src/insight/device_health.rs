//! Device health (Table 1, row 5): how much of a device can still be trusted with data.
//!
//! ```text
//! DeviceHealth = 1 - NumBadBlocks / TotalNumBlocks
//! ```
//!
//! - `NumBadBlocks`: blocks that the device itself counts as failed (what exactly, by kind of
//!   device, is told by `smart`'s `bad_blocks`).
//! - `TotalNumBlocks`: its logical blocks.
//!
//! A ratio: 1 is a device without a bad block. Even a dying disk of 10^10 blocks is above 0.999: compare
//! devices and watch it fall; the device's own judgement is the fact `smart/*/passed`. Unknown where
//! a device keeps no such count, or nobody may ask it.

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
        Wanted::needed("bad_blocks", Which::Own(&smart::BAD_BLOCKS)),
        Wanted::needed("total_blocks", Which::Own(&smart::TOTAL_BLOCKS)),
    ],
    compute,
};

fn compute(_: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let (bad, total) = (inputs.number(0)?, inputs.number(1)?);
    if bad > total {
        return Err(Unknown::new(format!("{bad} bad blocks of {total} cannot be")));
    }
    let bad = quotient(bad, total, "the device says that it has no blocks")?;
    number(1.0 - bad)
}
