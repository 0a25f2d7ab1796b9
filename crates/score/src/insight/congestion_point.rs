//! Congestion point (MicroMon): the fullest queue on a path.
//!
//! The insight is a record for each path with in-band telemetry:
//!
//! - `time_ns`: the time at which the hops were reported.
//! - `path`: both addresses, as in topics.
//! - `node`, `port`: the egress port with the fullest queue.
//! - `queue_bytes`: the bytes in it.
//! - `latency_seconds`: the time that the packet was in that node; `null` if the node does not say.
//! - `text`: the same for people: `node 1 port 3 holds 1.2 MB`.
//!
//! The insight is unknown while no hop reports its queue, and while all queues are empty.

use serde_json::Value as Json;
use skopos_model::schema::{insight, path};

use super::record::Record;
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::CONGESTION_POINT,
    row: 17,
    name: "congestion point",
    formula: "the hop of hops with the largest queue_bytes",
    source: "MicroMon, section 4: queue occupancy of switches; the record is our own",
    instances: Instances::Paths,
    inputs: &[InputSpec::needed("hops", FactSelector::Own(&path::HOPS))],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let hops = inputs.structured(0)?.as_json();
    let hops = hops.as_array().ok_or_else(|| Unknown::new("the hops are not a list"))?;
    let queue = |hop: &Json| hop.get("queue_bytes").and_then(Json::as_u64);
    let known = hops.iter().filter_map(|hop| Some((queue(hop)?, hop)));
    // Of two hops with the same queue, the first of the path is the cause.
    let fullest = known.rev().max_by_key(|(bytes, _)| *bytes);
    let (bytes, hop) = fullest.ok_or_else(|| Unknown::new("no hop reports its queue"))?;
    if bytes == 0 {
        return Err(Unknown::new("all queues of the path are empty"));
    }
    let part = |name: &str| hop.get(name).cloned().unwrap_or(Json::Null);
    let mut record = Record::default();
    record.put_time(inputs.first(0)?.checked_at());
    record.put("path", &*subject.instance);
    record.put("node", part("node"));
    record.put("port", part("egress_port"));
    record.put("queue_bytes", bytes);
    record.put("latency_seconds", part("latency_seconds"));
    let text =
        format!("node {} port {} holds {}", part("node"), part("egress_port"), amount(bytes));
    record.put("text", text);
    record.finish()
}

/// Returns bytes with two digits and a decimal unit: `1.2 MB`.
pub(super) fn amount(bytes: u64) -> String {
    let bytes = bytes as f64;
    let scaled =
        [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)].into_iter().find(|(_, unit)| bytes >= *unit);
    match scaled {
        Some((name, unit)) if bytes / unit < 10.0 => format!("{:.1} {name}", bytes / unit),
        Some((name, unit)) => format!("{:.0} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}
