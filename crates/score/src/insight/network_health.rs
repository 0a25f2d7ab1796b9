//! Network health (Table 1, row 6): the connection from this node to another.
//!
//! ```text
//! (timestamp, nodeID-1, nodeID-2, ping time between the 2 nodes)
//! ```
//!
//! The insight is a record for each peer:
//!
//! - `time_ns`: the time at which the ping time was measured.
//! - `from`, `to`: this node and the peer.
//! - `alive`: true if the peer answers.
//! - `ping_seconds`: the round-trip time of the last answer; `null` with its reason under `unknown`
//!   while the peer does not answer, because an old time says nothing about the present.
//! - `ping_seconds_min`: the smallest of the recent round-trip times: the path without its queues.
//!
//! The insight is unknown until the peer has answered, or has failed to answer for long enough.

use skopos_model::schema::{insight, peer};

use super::record::Record;
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::NETWORK_HEALTH,
    row: 6,
    name: "network health",
    formula: "(time, node, peer, alive, rtt, rtt_min)",
    source: "Apollo, Table 1, row 6: (timestamp, nodeID-1, nodeID-2, ping time)",
    instances: Instances::Peers,
    inputs: &[
        InputSpec::needed("alive", FactSelector::Own(&peer::ALIVE)),
        InputSpec::optional("rtt", FactSelector::Own(&peer::RTT_SECONDS)),
        InputSpec::optional("rtt_min", FactSelector::Own(&peer::RTT_SECONDS_MIN)),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let alive = inputs.number(0)? != 0.0;
    let ping = |slot| {
        if alive {
            return inputs.number(slot);
        }
        Err(Unknown::new(format!("{} does not answer", subject.instance)))
    };
    let measured = if alive { inputs.first(1) } else { inputs.first(0) };
    let mut record = Record::default();
    record.put_time(measured.map_or(inputs.now(), Cell::checked_at));
    record.put("from", &*subject.node);
    record.put("to", &*subject.instance);
    record.put("alive", alive);
    record.try_put("ping_seconds", ping(1));
    record.try_put("ping_seconds_min", ping(2));
    record.finish()
}
