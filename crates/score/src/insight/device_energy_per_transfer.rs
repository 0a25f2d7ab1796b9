//! Energy per transfer of a device (Table 1, row 11): the energy that one read or write costs on
//! it.
//!
//! ```text
//! EnergyPerTransfer = PowerPerSec / TransfersPerSec
//! ```
//!
//! # Our own reading
//! The table has two rows of this name, 11 and 14, with formulas that differ only in spelling, and
//! defines both for a node. It states neither the unit of `PowerPerSec` nor the meaning of a
//! transfer. Skopos reads row 11 as the energy of one device, because row 14 already covers the
//! node, and reads the two terms as follows:
//!
//! - `PowerPerSec`: the electrical power of the device in watts. Only a meter of the device shows
//!   it: a fact `energy/DEVICE/power_watts`, which any process that reads a meter (a power strip,
//!   an enclosure) can publish. Skopos does not divide the energy of the node among its devices,
//!   because that would be a guess.
//! - `TransfersPerSec`: reads and writes completed per second, as iostat counts them (tps).
//!
//! The unit is joules. The insight is unknown without a meter, and while no transfer completes.

use skopos_model::schema::{block, energy, insight};

use super::definition::{number, number_or, quotient};
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::DEVICE_ENERGY_PER_TRANSFER_JOULES,
    row: 11,
    name: "energy per transfer of a device",
    formula: "power / (rate(reads) + rate(writes))",
    source: "Apollo, Table 1, row 11: PowerPerSec / TransfersPerSec. The table gives no units and \
             defines the row for a node, like row 14; Skopos' own reading: the power of one device \
             in watts over its completed reads and writes per second",
    instances: Instances::Devices,
    inputs: &[
        InputSpec::optional("power", FactSelector::Own(&energy::POWER_WATTS)),
        InputSpec::needed("reads", FactSelector::Own(&block::READ_REQUESTS_TOTAL)),
        InputSpec::needed("writes", FactSelector::Own(&block::WRITTEN_REQUESTS_TOTAL)),
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
