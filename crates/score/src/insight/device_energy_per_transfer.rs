//! Energy per transfer of a device (Table 1, row 11): what one read or write costs on it.
//!
//! ```text
//! EnergyPerTransfer = PowerPerSec / TransfersPerSec
//! ```
//!
//! - `PowerPerSec`: the device's power. Only a meter of its own tells it: a fact
//!   `energy/DEVICE/power_watts`, which any process can publish that reads one (a power strip, an
//!   enclosure). The energy of the node is not split up among devices: that would be a guess.
//! - `TransfersPerSec`: reads and writes completed a second, as iostat counts them (tps).
//!
//! Joules. Unknown without a meter, and while no transfer completes.

use skopos_model::schema::{block, energy, insight};

use super::definition::{number, number_or, quotient};
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::DEVICE_ENERGY_PER_TRANSFER_JOULES,
    row: 11,
    name: "energy per transfer of a device",
    formula: "power / (rate(reads) + rate(writes))",
    source: "Apollo, Table 1, row 11: PowerPerSec / TransfersPerSec",
    instances: Instances::Devices,
    inputs: &[
        Wanted::optional("power", Which::Own(&energy::POWER_WATTS)),
        Wanted::needed("reads", Which::Own(&block::READ_REQUESTS_TOTAL)),
        Wanted::needed("writes", Which::Own(&block::WRITTEN_REQUESTS_TOTAL)),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let Subject { node, instance, .. } = subject;
    let power = number_or(inputs, 0, || {
        let fact = format!("{node}/energy/{instance}/power_watts");
        format!("{instance} has no power meter; a process that reads one can publish {fact}")
    })?;
    let transfers = inputs.rate(1)? + inputs.rate(2)?;
    number(quotient(power, transfers, "no transfers in the last interval")?)
}
