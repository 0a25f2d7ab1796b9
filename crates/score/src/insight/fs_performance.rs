//! File-system performance (Table 1, row 3): the properties on which the speed of a file system
//! depends.
//!
//! ```text
//! (compression type, block size, RAID level, #devices, MaxBW), per file system
//! ```
//!
//! The insight is a record with these fields. An unknown field is `null`, with its reason under
//! `unknown`:
//!
//! - `type`: `ext4`, `xfs`, ...
//! - `compression`: `none` or the algorithm.
//! - `block_bytes`: the unit of allocation.
//! - `raid_level`: `none` or the level.
//! - `devices`: the number of devices over which it is spread.
//! - `device`: the whole device that holds it, and
//!   `max_bandwidth_bytes_per_second`: the bandwidth of that device in its calibration.

use serde_json::Value as Json;
use skopos_model::schema::{device, fsinfo, insight};

use super::definition::{json, of_instance, text};
use super::record::Record;
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::FS_PERFORMANCE,
    row: 3,
    name: "file-system performance",
    formula: "(type, compression, block_bytes, raid_level, devices, device, max_bandwidth of device)",
    source: "Apollo, Table 1, row 3: (compression type, block size, RAID level, #devices, MaxBW)",
    instances: Instances::FileSystems,
    inputs: &[
        InputSpec::needed("type", FactSelector::Own(&fsinfo::TYPE)),
        InputSpec::optional("compression", FactSelector::Own(&fsinfo::COMPRESSION)),
        InputSpec::optional("block_bytes", FactSelector::Own(&fsinfo::BLOCK_BYTES)),
        InputSpec::optional("raid_level", FactSelector::Own(&fsinfo::RAID_LEVEL)),
        InputSpec::optional("devices", FactSelector::Own(&fsinfo::DEVICE_COUNT)),
        InputSpec::optional("device", FactSelector::Own(&fsinfo::DEVICE)),
        InputSpec::optional(
            "max_bandwidth",
            FactSelector::Every(&device::MAX_BANDWIDTH_BYTES_PER_SECOND),
        ),
    ],
    compute,
};

fn compute(_: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let mut record = Record::default();
    record.put("type", inputs.structured(0)?.as_json().clone());
    let optional = |slot, what: &str| -> Result<Json, Unknown> {
        match inputs.first(slot) {
            Ok(cell) if cell.outcome().is_some() => json(inputs, slot),
            _ => {
                let why = format!("neither the file system nor its mount reports {what}");
                Err(Unknown::new(why))
            }
        }
    };
    record.try_put("compression", optional(1, "its compression"));
    record.try_put("block_bytes", optional(2, "the size of a block"));
    record.try_put("raid_level", optional(3, "the RAID level"));
    record.try_put("devices", optional(4, "the number of devices"));
    record.try_put("device", holder(inputs));
    record.try_put("max_bandwidth_bytes_per_second", max_bandwidth(inputs));
    record.finish()
}

/// Returns the whole device that holds the file system.
fn holder<'a>(inputs: &Inputs<'a>) -> Result<&'a str, Unknown> {
    inputs.first(5).ok().and_then(text).ok_or_else(|| Unknown::new("no block device holds it"))
}

fn max_bandwidth(inputs: &Inputs<'_>) -> Result<f64, Unknown> {
    let device = tiers::instance_of(holder(inputs)?);
    match of_instance(inputs, 6, &device) {
        Some(cell) if cell.outcome().is_some() => cell.number(),
        _ => Err(Unknown::new(interference_factor::uncalibrated(&device, inputs.reason(6)))),
    }
}
