//! Device load (Table 1, row 13): the amount of I/O that a device is doing.
//!
//! ```text
//! DeviceLoad = (Blk_read/s + Blk_written/s) / (Blk_read + Blk_written)
//! ```
//!
//! The names are iostat's columns: blocks a second, and blocks since the start of the machine. The
//! size of a block cancels out, so bytes serve as well.
//!
//! What the printed formula means is odd: a share of all that the device has ever moved, per second
//! (1/s). A device that always does the same shows 1 / uptime; a young one that does little looks
//! more loaded than an old one that does much. It compares a device with its own past: times the
//! uptime, it is the present pace over the mean pace. To compare devices with each other there is
//! beside it the busy share: the share of the time in which at least one request was in flight, which
//! is 0 to 1 for every device (for one that serves many requests at a time, 1 does not yet mean that
//! it can do no more).
//!
//! Unknown until there were two polls, and for a device that has moved nothing since the start.

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
        Wanted::needed("read", Which::Own(&block::READ_BYTES_TOTAL)),
        Wanted::needed("written", Which::Own(&block::WRITTEN_BYTES_TOTAL)),
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
    inputs: &[Wanted::needed("busy_seconds", Which::Own(&block::BUSY_SECONDS_TOTAL))],
    compute: compute_busy,
};

fn compute(_: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let moved = inputs.number(0)? + inputs.number(1)?;
    let per_second = inputs.rate(0)? + inputs.rate(1)?;
    number(quotient(per_second, moved, "nothing was read or written since the start")?)
}

fn compute_busy(_: &Subject, inputs: &Inputs<'_>) -> Outcome {
    // The kernel rounds to milliseconds, so a busy device can seem to be busy for longer than there
    // was time.
    number(inputs.rate(0)?.min(1.0))
}
