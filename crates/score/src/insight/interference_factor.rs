//! Interference factor (Table 1, row 2): the degree to which other I/O interferes with I/O to a
//! device.
//!
//! ```text
//! InterferenceFactor = RealBW / MaxBW
//! ```
//!
//! - `RealBW`: the bytes read and written per second between the last two polls.
//! - `MaxBW`: the bandwidth in a calibration. Many devices write slower than they read, so it is
//!   the bandwidth for the present mix: `RealBW / MaxBW = read / max_read + written / max_written`.
//!   If the calibration has only one of the two, the highest bandwidth stands for both.
//!
//! The insight is a ratio, 0 for an idle device. Above 1 the device does more than in its
//! calibration, which should then be repeated. It is unknown without a calibration, because the
//! limit of a device cannot be observed from outside.

use skopos_model::schema::{block, device, insight};

use super::definition::{number, number_or, quotient};
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::INTERFERENCE_FACTOR_RATIO,
    row: 2,
    name: "interference factor",
    formula: "rate(read) / max_read + rate(written) / max_written, else (rate(read) + \
              rate(written)) / max_bandwidth",
    source: "Apollo, Table 1, row 2: RealBW / MaxBW",
    instances: Instances::Devices,
    inputs: &[
        InputSpec::needed("read", FactSelector::Own(&block::READ_BYTES_TOTAL)),
        InputSpec::needed("written", FactSelector::Own(&block::WRITTEN_BYTES_TOTAL)),
        InputSpec::optional(
            "max_bandwidth",
            FactSelector::Own(&device::MAX_BANDWIDTH_BYTES_PER_SECOND),
        ),
        InputSpec::optional("max_read", FactSelector::Own(&device::MAX_READ_BYTES_PER_SECOND)),
        InputSpec::optional("max_written", FactSelector::Own(&device::MAX_WRITE_BYTES_PER_SECOND)),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    // This check comes first, because the user can do something about it.
    let highest = number_or(inputs, 2, || uncalibrated(&subject.instance, inputs.reason(2)))?;
    let both = (|| Some((inputs.number(3).ok()?, inputs.number(4).ok()?)))();
    let (max_read, max_written) = both.unwrap_or((highest, highest));
    let none = "the calibration has a bandwidth of zero";
    let read = quotient(inputs.rate(0)?, max_read, none)?;
    let written = quotient(inputs.rate(1)?, max_written, none)?;
    number(read + written)
}

/// Returns the reason why `device` has no highest bandwidth, and the remedy. If a reason is known,
/// such as a damaged file of calibrations, another calibration does not help.
pub(super) fn uncalibrated(device: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("no calibration: {reason}"),
        None => format!("no calibration: run `skopos calibrate {device}`"),
    }
}
