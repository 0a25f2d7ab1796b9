//! Node availability list (Table 1, row 9): the nodes that are online, for whoever elects a leader.
//!
//! ```text
//! (timestamp, list of all the available nodes)
//! ```
//!
//! A record:
//!
//! - `time_ns`: when the list came to be as it is.
//! - `count`: how many nodes are online: this one, which has just computed it, and each peer that
//!   answers its probes. A peer of which it is not known yet is not counted; `undecided` says how
//!   many there are.
//! - `nodes`: their names in order. Every node that sees the same nodes has the same list, so the
//!   first of it may lead.
//! - `truncated`: names that had no room.
//!
//! Never unknown; without peers it is this node alone, and `unknown` says why there are none.

use skopos_model::schema::{insight, peer};

use super::definition::{cells, instance};
use super::record::Record;
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::NODE_AVAILABILITY,
    row: 9,
    name: "node availability list",
    formula: "(time, this node and the peers that are alive, in the order of their names)",
    source: "Apollo, Table 1, row 9: (timestamp, list of all the available node)",
    instances: Instances::Node,
    inputs: &[Wanted::optional("alive", Which::Every(&peer::ALIVE))],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let mut nodes = vec![&*subject.node];
    let mut undecided = 0;
    for peer in cells(inputs, 0) {
        match peer.number() {
            Ok(0.0) => {}
            Ok(_) => nodes.push(instance(peer)),
            Err(_) => undecided += 1,
        }
    }
    nodes.sort_unstable();
    nodes.dedup();
    let mut record = Record::default();
    record.put_time(inputs.now());
    record.put("count", nodes.len());
    record.put("undecided", undecided);
    record.put_list("nodes", 0, nodes.into_iter().map(Into::into).collect());
    if let Err(unknown) = inputs.one(0) {
        record.why("nodes", &unknown);
    }
    record.finish()
}
