//! Interference factor (Table 1, row 2): the degree to which a device's I/O is interfered with.
//!
//! ```text
//! InterferenceFactor = RealBW / MaxBW
//! ```
//!
//! - `RealBW`: bytes read and written a second, between the last two polls.
//! - `MaxBW`: what a calibration has measured. Many devices write slower than they read, so it is
//!   that of the present mix: `RealBW / MaxBW = read / max_read + written / max_written`. If only
//!   one of the two was measured, the highest bandwidth stands for both.
//!
//! A ratio, 0 for an idle device. Above 1 the device does more than in its calibration, which then
//! should be done again. Unknown without a calibration: nobody can tell from outside what a device
//! could do.

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
        Wanted::needed("read", Which::Own(&block::READ_BYTES_TOTAL)),
        Wanted::needed("written", Which::Own(&block::WRITTEN_BYTES_TOTAL)),
        Wanted::optional("max_bandwidth", Which::Own(&device::MAX_BANDWIDTH_BYTES_PER_SECOND)),
        Wanted::optional("max_read", Which::Own(&device::MAX_READ_BYTES_PER_SECOND)),
        Wanted::optional("max_written", Which::Own(&device::MAX_WRITE_BYTES_PER_SECOND)),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    // First, since it is what the user can do something about.
    let highest = number_or(inputs, 2, || uncalibrated(&subject.instance, inputs.reason(2)))?;
    let both = (|| Some((inputs.number(3).ok()?, inputs.number(4).ok()?)))();
    let (max_read, max_written) = both.unwrap_or((highest, highest));
    let none = "the calibration says that no byte can be moved";
    let read = quotient(inputs.rate(0)?, max_read, none)?;
    let written = quotient(inputs.rate(1)?, max_written, none)?;
    number(read + written)
}

/// Why there is no highest bandwidth of `device`, and what to do. Where there is a reason, such as a
/// damaged file of calibrations, another run is not what helps.
pub(super) fn uncalibrated(device: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("no calibration: {reason}"),
        None => format!("no calibration: run `skopos calibrate {device}`"),
    }
}
