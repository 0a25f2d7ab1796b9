//! Device fault tolerance (Table 1, row 7): the number of copies of a datum that a device is good
//! for.
//!
//! ```text
//! FaultTolerance = ReplicationLevel * DeviceHealth
//! ```
//!
//! # Our own reading
//! The table prints `ReplicationLevel` above `DeviceHealth`, in the layout of its fractions, and
//! defines the insight only as the fault tolerance of a device. Read as a quotient, a sick device
//! would tolerate more faults than a healthy one, but the paper's use case places important data on
//! devices with more fault tolerance. So Skopos multiplies:
//!
//! - `ReplicationLevel`: the number of copies of each datum, 1 without replication. Skopos takes it
//!   from the `tiers` file if that names the device, because only people know the disks behind a
//!   RAID controller or a virtual disk; otherwise from `/proc/mdstat` if the device is an array;
//!   otherwise from the file systems on the device, of which the one with the fewest copies counts.
//! - `DeviceHealth`: row 5, from 0 to 1.
//!
//! The insight is a plain number: 2 for a healthy mirror of two, 1 for a healthy single disk. It is
//! unknown if either factor is unknown.

use skopos_model::schema::{fsinfo, insight, raid};

use super::definition::{cells, instance, number, of_instance, text};
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::DEVICE_FAULT_TOLERANCE,
    row: 7,
    name: "device fault tolerance",
    formula: "replication * health, where replication is that of the tiers file, else array_copies, \
              else the least fs_copies of the file systems whose fs_device it is",
    source: "Apollo, Table 1, row 7: ReplicationLevel above DeviceHealth, without a definition of \
             either. Skopos' own reading: their product, because a quotient would rate a sick \
             device as more tolerant",
    instances: Instances::Devices,
    inputs: &[
        InputSpec::needed("health", FactSelector::Own(&insight::DEVICE_HEALTH_RATIO)),
        InputSpec::optional("array_copies", FactSelector::Own(&raid::COPIES)),
        InputSpec::optional("fs_device", FactSelector::Every(&fsinfo::DEVICE)),
        InputSpec::optional("fs_copies", FactSelector::Every(&fsinfo::COPIES)),
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
            "the number of copies on {device} is not known: it is not an array, no file system \
             on it reports it, and the tiers file has no [[device]] {device}: see docs/reference/tiers.md"
        ))
    })
}
