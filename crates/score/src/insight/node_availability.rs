//! Node availability list (Table 1, row 9): the nodes that are online, for example for the election
//! of a leader.
//!
//! ```text
//! (timestamp, list of all the available nodes)
//! ```
//!
//! The insight is a record:
//!
//! - `time_ns`: the time at which the list was computed.
//! - `count`: the number of nodes that are online: this node and each peer that answers its probes.
//!   A peer whose state is not known yet does not count; `undecided` is the number of such peers.
//! - `nodes`: their names in order. Nodes that see the same nodes have the same list, so its first
//!   node may lead.
//! - `truncated`: the number of names that are left out.
//!
//! The insight is never unknown; without peers it lists this node alone, and `unknown` says why
//! there are no peers.

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
    inputs: &[InputSpec::optional("alive", FactSelector::Every(&peer::ALIVE))],
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
    if let Err(unknown) = inputs.first(0) {
        record.why("nodes", &unknown);
    }
    record.finish()
}
