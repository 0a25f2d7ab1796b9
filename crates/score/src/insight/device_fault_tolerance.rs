//! Device fault tolerance (Table 1, row 7): how many copies of a datum one may count on.
//!
//! The table prints `ReplicationLevel` over `DeviceHealth`, without an operator that survives text
//! extraction. A quotient would call a sick device the more tolerant one, so it is the product:
//!
//! ```text
//! FaultTolerance = ReplicationLevel * DeviceHealth
//! ```
//!
//! - `ReplicationLevel`: copies of each datum, 1 without replication. The `tiers` file decides if it
//!   names the device, since only people know what stands behind a RAID controller or a virtual
//!   disk; else the array tells (`/proc/mdstat`) if the device is one; else the file systems on
//!   it, of which the one with the fewest copies counts.
//! - `DeviceHealth`: row 5. Of a healthy mirror of two it is 2, of a healthy plain disk 1.
//!
//! A plain number. Unknown where either is unknown.

use skopos_model::schema::{fsinfo, insight, raid};

use super::definition::{cells, instance, number, of_instance, text};
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::DEVICE_FAULT_TOLERANCE,
    row: 7,
    name: "device fault tolerance",
    formula: "replication * health, where replication is that of the tiers file, else array_copies, \
              else the least fs_copies of the file systems whose fs_device it is",
    source: "Apollo, Table 1, row 7: ReplicationLevel, DeviceHealth",
    instances: Instances::Devices,
    inputs: &[
        Wanted::needed("health", Which::Own(&insight::DEVICE_HEALTH_RATIO)),
        Wanted::optional("array_copies", Which::Own(&raid::COPIES)),
        Wanted::optional("fs_device", Which::Every(&fsinfo::DEVICE)),
        Wanted::optional("fs_copies", Which::Every(&fsinfo::COPIES)),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let replication = replication(subject, inputs)?;
    number(replication * inputs.number(0)?)
}

fn replication(subject: &Subject, inputs: &Inputs<'_>) -> Result<f64, Unknown> {
    let device = &*subject.instance;
    if let Some(copies) = subject.tiers.replication(device) {
        return Ok(copies.into());
    }
    if let Ok(copies) = inputs.number(1) {
        return Ok(copies);
    }
    let holds = |cell: &&Cell| text(cell).is_some_and(|of| tiers::instance_of(of) == device);
    let file_systems = cells(inputs, 2).filter(holds);
    let copies = file_systems.filter_map(|fs| of_instance(inputs, 3, instance(fs))?.number().ok());
    copies.min_by(f64::total_cmp).ok_or_else(|| {
        Unknown::new(format!(
            "nobody tells how many copies {device} keeps: it is no array, no file system on it \
             says, and the tiers file has no [[device]] {device}: see docs/reference/tiers.md"
        ))
    })
}
