//! System time (Table 1, row 12): the clock of a node, and its drift.
//!
//! ```text
//! (NodeID, system time), and the drift that is calculated from it
//! ```
//!
//! The insight is a record:
//!
//! - `node`: the node with the clock.
//! - `time_ns`: the system time at which the other fields held.
//! - `drift_ppm`: the millionths by which the clock ran faster than its hardware counter since the
//!   poll before: the correction that a time service makes.
//! - `peer_offset_seconds`: the time by which the clocks of the peers are ahead of this one: the
//!   median, so that one wrong clock does not move it. `peer_offset_bound_seconds` is the greatest
//!   error of the median peer's offset.
//! - `peers`: the number of peers that are alive and report their time.
//!
//! The offsets are `null`, with the reason under `unknown`, if no living peer reports its time. The
//! drift is `null` until the second poll. The time itself is always known.

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
        InputSpec::optional("drift", FactSelector::Named(&clock::DRIFT_PPM, "")),
        InputSpec::optional("offset", FactSelector::Every(&peer::CLOCK_OFFSET_SECONDS)),
        InputSpec::optional("offset_bound", FactSelector::Every(&peer::CLOCK_OFFSET_BOUND_SECONDS)),
        InputSpec::optional("alive", FactSelector::Every(&peer::ALIVE)),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    // The offset of a dead peer says nothing about either clock now.
    let is_dead = |peer: &str| {
        let alive = of_instance(inputs, 3, peer).map(|cell| cell.number());
        matches!(alive, Some(Ok(0.0)))
    };
    let living = cells(inputs, 1).filter(|cell| !is_dead(instance(cell)));
    let mut offsets: Vec<(f64, &str)> =
        living.filter_map(|cell| Some((cell.number().ok()?, instance(cell)))).collect();
    offsets.sort_by(|a, b| a.0.total_cmp(&b.0));
    // For an even number of peers, the lower of the two in the middle: a peer's own offset, with a
    // known bound.
    let median = offsets.len().checked_sub(1).map(|last| offsets[last / 2]);
    let (offset, bound) = match median {
        Some((offset, peer)) => (Ok(offset), bound_of(inputs, peer)),
        None => {
            let why = match inputs.first(1) {
                Ok(_) if cells(inputs, 1).any(|cell| cell.number().is_ok()) => {
                    Unknown::new("no peer that reports its time is alive")
                }
                Ok(_) => Unknown::new("no peer has reported its time yet"),
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
        None => Err(Unknown::new(format!("the offset of {peer} has no bound"))),
    }
}
