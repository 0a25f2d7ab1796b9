//! Device load (Table 1, row 13): the amount of I/O that a device does.
//!
//! ```text
//! DeviceLoad = (Blk_read/s + Blk_written/s) / (Blk_read + Blk_written)
//! ```
//!
//! The names are columns of iostat: blocks per second, and blocks since the machine started. The
//! size of a block cancels out, so the insight uses bytes.
//!
//! The printed formula has an odd meaning: the share of all data that the device has ever moved,
//! per second (1/s). A device with a constant load shows 1 / uptime, and a device that was added
//! recently and does little looks more loaded than an old one that does much. So the formula
//! compares a device with its own past: multiplied by the uptime, it is the present rate over the
//! mean rate. To compare devices with each other, a second insight gives the busy share: the share
//! of the time with at least one request in flight, from 0 to 1 for every device (a device that
//! serves many requests at once may still have capacity at 1).
//!
//! The insight is unknown until two polls, and for a device that has moved no data since the start.

use skopos_model::schema::{block, insight};

use super::definition::{number, quotient};
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::DEVICE_LOAD_RATIO_PER_SECOND,
    row: 13,
    name: "device load",
    formula: "(rate(read) + rate(written)) / (read + written)",
    source: "Apollo, Table 1, row 13: (Blk_read/s + Blk_written/s) / (Blk_read + Blk_written)",
    instances: Instances::Devices,
    inputs: &[
        InputSpec::needed("read", FactSelector::Own(&block::READ_BYTES_TOTAL)),
        InputSpec::needed("written", FactSelector::Own(&block::WRITTEN_BYTES_TOTAL)),
    ],
    compute,
};

pub(super) static BUSY_DEFINITION: Definition = Definition {
    metric: &insight::DEVICE_LOAD_BUSY_RATIO,
    row: 13,
    name: "busy share of a device",
    formula: "min(rate(busy_seconds), 1)",
    source: "the busy share that iostat calls %util, beside Apollo's Table 1, row 13",
    instances: Instances::Devices,
    inputs: &[InputSpec::needed("busy_seconds", FactSelector::Own(&block::BUSY_SECONDS_TOTAL))],
    compute: compute_busy,
};

fn compute(_: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let moved = inputs.number(0)? + inputs.number(1)?;
    let per_second = inputs.rate(0)? + inputs.rate(1)?;
    number(quotient(per_second, moved, "the device has moved no data since the machine started")?)
}

fn compute_busy(_: &Subject, inputs: &Inputs<'_>) -> Outcome {
    // The kernel rounds to milliseconds, so a busy device can appear busy for longer than the
    // interval.
    number(inputs.rate(0)?.min(1.0))
}
