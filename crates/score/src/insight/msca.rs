//! MSCA, medium sensitivity to concurrent access (Table 1, row 1): the demand for a device's
//! concurrency while the device has bandwidth left.
//!
//! The text of the paper shows `NumReqs / DevC`; the second factor of the printed formula is torn
//! apart. Together with the definition, which names the concurrent I/O that a device can handle
//! (`DevC`), and with the quantities of row 2, Skopos reads it as
//!
//! ```text
//! MSCA = NumReqs / DevC * (MaxBW - RealBW) / MaxBW
//! ```
//!
//! - `NumReqs`: the mean number of requests in flight since the last poll. The bandwidth is a mean
//!   over that time as well, and the number at the moment of a poll is mostly chance.
//! - `DevC`: the number of requests that the device accepts at a time.
//! - `(MaxBW - RealBW) / MaxBW`: 1 minus the interference factor, never below 0.
//!
//! The insight is a plain number, 0 for an idle device. If it is high, many requests wait although
//! there is bandwidth left, so the device suffers from concurrency. Near 0, the device is idle or
//! has no bandwidth left. It is unknown without a calibration, and for devices without queues of
//! their own (md, dm).

use skopos_model::schema::{block, device, insight};

use super::definition::{number, number_or, quotient};
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::MSCA,
    row: 1,
    name: "medium sensitivity to concurrent access",
    formula: "requests / concurrency * (1 - min(interference, 1))",
    source: "Apollo, Table 1, row 1: NumReqs / DevC * (MaxBW - RealBW) / MaxBW",
    instances: Instances::Devices,
    inputs: &[
        InputSpec::needed("requests", FactSelector::Own(&block::QUEUE_DEPTH_MEAN)),
        InputSpec::optional("concurrency", FactSelector::Own(&device::CONCURRENCY)),
        InputSpec::needed("interference", FactSelector::Own(&insight::INTERFERENCE_FACTOR_RATIO)),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let device = &subject.instance;
    let concurrency = number_or(inputs, 1, || {
        format!("{device} does not report how many requests it accepts at a time")
    })?;
    let left = (1.0 - inputs.number(2)?).max(0.0);
    let none = format!("{device} reports that it accepts no requests");
    let asked = quotient(inputs.number(0)?, concurrency, &none)?;
    number(asked * left)
}
