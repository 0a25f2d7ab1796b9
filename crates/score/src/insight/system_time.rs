//! System time (Table 1, row 12): a node's clock, and how it runs.
//!
//! ```text
//! (NodeID, system time), and the drift that is calculated from it
//! ```
//!
//! A record:
//!
//! - `node`: whose clock.
//! - `time_ns`: the system time at which the rest of the record held.
//! - `drift_ppm`: how much faster than its hardware counter the clock ran since the poll before, in
//!   millionths: what a time service corrects by.
//! - `peer_offset_seconds`: what the clocks of the peers are ahead of this one by: the median, so
//!   that one peer with a wrong clock does not move it; `peer_offset_bound_seconds` is how far the
//!   median peer's own may be from the truth.
//! - `peers`: peers that are alive and tell their time.
//!
//! Offsets are `null`, with the reason under `unknown`, where no peer that is alive tells its time, and
//! so is the drift until the clock was looked at twice: what time it is is known all the same.

use skopos_model::schema::{clock, insight, peer};

use super::definition::{cells, instance, of_instance};
use super::record::Record;
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::SYSTEM_TIME,
    row: 12,
    name: "system time",
    formula: "(node, time, drift, median(offset of peers that are alive), offset_bound of that peer)",
    source: "Apollo, Table 1, row 12: (NodeID, system time), calculate drift",
    instances: Instances::Node,
    inputs: &[
        Wanted::optional("drift", Which::Of(&clock::DRIFT_PPM, "")),
        Wanted::optional("offset", Which::Every(&peer::CLOCK_OFFSET_SECONDS)),
        Wanted::optional("offset_bound", Which::Every(&peer::CLOCK_OFFSET_BOUND_SECONDS)),
        Wanted::optional("alive", Which::Every(&peer::ALIVE)),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    // What a dead peer's clock was ahead of this one says nothing of either now.
    let is_dead = |peer: &str| {
        let alive = of_instance(inputs, 3, peer).map(|cell| cell.number());
        matches!(alive, Some(Ok(0.0)))
    };
    let told = cells(inputs, 1).filter(|cell| !is_dead(instance(cell)));
    let mut offsets: Vec<(f64, &str)> =
        told.filter_map(|cell| Some((cell.number().ok()?, instance(cell)))).collect();
    offsets.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Of an even number the lower one: it is some peer's offset, whose bound is known.
    let median = offsets.len().checked_sub(1).map(|last| offsets[last / 2]);
    let (offset, bound) = match median {
        Some((offset, peer)) => (Ok(offset), bound_of(inputs, peer)),
        None => {
            let why = match inputs.one(1) {
                Ok(_) if cells(inputs, 1).any(|cell| cell.number().is_ok()) => {
                    Unknown::new("no peer that tells its time is alive")
                }
                Ok(_) => Unknown::new("no peer has told its time yet"),
                Err(unknown) => unknown,
            };
            (Err(why.clone()), Err(why))
        }
    };
    let mut record = Record::default();
    record.put("node", &*subject.node);
    record.put_time(inputs.now());
    record.try_put("drift_ppm", inputs.number(0));
    record.put("peers", offsets.len());
    record.try_put("peer_offset_seconds", offset);
    record.try_put("peer_offset_bound_seconds", bound);
    record.finish()
}

fn bound_of(inputs: &Inputs<'_>, peer: &str) -> Result<f64, Unknown> {
    match of_instance(inputs, 2, peer) {
        Some(cell) => cell.number(),
        None => Err(Unknown::new(format!("{peer} has no bound"))),
    }
}
