//! Energy per transfer of a node (Table 1, row 14): the power of a node relative to the I/O that it
//! does.
//!
//! ```text
//! EnergyPerTransfer = (power/s) / (transfers/s)
//! ```
//!
//! - `power/s`: the power of the processors and their memory, by their own counters (RAPL), in
//!   watts. The rest of the node is not included, because no meter inside a node measures it.
//! - `transfers/s`: the reads and writes per second that the devices of the node complete. Loop
//!   devices, arrays and device-mapper pass requests on to other devices, which count them; zram
//!   and RAM disks do no I/O. So none of these counts.
//!
//! The unit is joules. The insight is unknown without energy counters, and while no transfer
//! completes.

use skopos_model::schema::{block, device, energy, insight};

use super::definition::{cells, instance, number, of_instance, quotient, text};
use super::*;

/// Kinds of devices that pass requests on to other devices, or that are memory.
const NOT_THE_LAST: &[&str] = &["loop", "md", "dm", "zram", "ram"];

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::NODE_ENERGY_PER_TRANSFER_JOULES,
    row: 14,
    name: "energy per transfer of a node",
    formula: "power / (sum(rate(reads)) + sum(rate(writes))), over devices whose kind is none of \
              loop, md, dm, zram, ram",
    source: "Apollo, Table 1, row 14: power/s / transfers/s",
    instances: Instances::Node,
    inputs: &[
        InputSpec::needed("power", FactSelector::Named(&energy::POWER_WATTS, "total")),
        InputSpec::needed("reads", FactSelector::Every(&block::READ_REQUESTS_TOTAL)),
        InputSpec::needed("writes", FactSelector::Every(&block::WRITTEN_REQUESTS_TOTAL)),
        InputSpec::optional("kind", FactSelector::Every(&device::KIND)),
    ],
    compute,
};

fn compute(_: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let power = inputs.number(0)?;
    inputs.first(1)?;
    inputs.first(3)?;
    let mut transfers = 0.0;
    let mut devices = 0;
    for kind in cells(inputs, 3) {
        // Partitions have no kind; the disk counts their requests.
        if text(kind).is_none_or(|kind| NOT_THE_LAST.contains(&kind)) {
            continue;
        }
        let rate_of = |slot| match of_instance(inputs, slot, instance(kind)) {
            Some(cell) => cell.rate(),
            None => Ok(0.0), // The device has never done I/O, or `block` would list it.
        };
        transfers += rate_of(1)? + rate_of(2)?;
        devices += 1;
    }
    if devices == 0 {
        return Err(Unknown::new("there is no block device whose transfers count"));
    }
    number(quotient(power, transfers, "no transfers in the last interval")?)
}
