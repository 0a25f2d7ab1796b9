//! MSCA, medium sensitivity to concurrent access (Table 1, row 1): how much of a device's ability to
//! serve requests at a time is asked for, while it has bandwidth left to serve more.
//!
//! Text extraction tears the printed formula apart: `NumReqs / DevC` can be read, the second factor
//! not. Read with the definition, "amount of concurrent I/O a device can handle (DevC)", and with
//! the quantities of row 2 it is
//!
//! ```text
//! MSCA = NumReqs / DevC * (MaxBW - RealBW) / MaxBW
//! ```
//!
//! - `NumReqs`: mean number of requests in flight since the last poll, because the bandwidth is a
//!   mean over that time as well; the number at the very moment of a poll is mostly chance.
//! - `DevC`: requests that the device takes at a time.
//! - `(MaxBW - RealBW) / MaxBW`: 1 less the interference factor, never below 0.
//!
//! A plain number, 0 for an idle device. High: many requests wait though there is bandwidth, so the
//! device suffers from concurrency. Near 0: it is idle, or it has no bandwidth left.
//! Unknown without a calibration, and for devices without queues of their own (md, dm).

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
        Wanted::needed("requests", Which::Own(&block::QUEUE_DEPTH_MEAN)),
        Wanted::optional("concurrency", Which::Own(&device::CONCURRENCY)),
        Wanted::needed("interference", Which::Own(&insight::INTERFERENCE_FACTOR_RATIO)),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let device = &subject.instance;
    let concurrency = number_or(inputs, 1, || {
        format!("{device} does not tell how many requests it takes at a time")
    })?;
    let left = (1.0 - inputs.number(2)?).max(0.0);
    let none = format!("{device} says that it takes no request at all");
    let asked = quotient(inputs.number(0)?, concurrency, &none)?;
    number(asked * left)
}
