//! The facts of paths.

use std::fmt::Write as _;
use std::net::IpAddr;

use serde_json::json;
use skopos_model::Structured;
use skopos_model::schema::path;

use super::facts::{FactSink, set_known};
use super::state::{PathKey, PathState};

/// Hands the facts of a path over. Its maxima begin anew.
pub(super) fn publish(name: &str, state: &mut PathState, sink: &mut dyn FactSink) {
    sink.set(&path::PACKETS_TOTAL, name, state.packets.into());
    sink.set(&path::LOST_TOTAL, name, state.lost().into());
    sink.set(&path::CHANGES_TOTAL, name, state.changes.into());
    sink.set(&path::MTU_EXCEEDED_TOTAL, name, state.mtu_exceeded.into());
    sink.set(&path::HOPS_EXCEEDED_TOTAL, name, state.hops_exceeded.into());
    if !std::mem::take(&mut state.is_new) {
        // Without a packet nothing is known about the present.
        return;
    }
    let seconds = |nanos: Option<u64>| nanos.map(|nanos| nanos as f64 / 1e9);
    set_known(sink, &path::LATENCY_SECONDS, name, seconds(state.latency_ns));
    set_known(sink, &path::LATENCY_SECONDS_MAX, name, seconds(state.latency_ns_max.take()));
    set_known(sink, &path::HOPS_LATENCY_SECONDS, name, seconds(state.hops_latency_ns));
    set_known(sink, &path::QUEUE_BYTES_MAX, name, state.queue_bytes_max.take().map(u64::from));
    let hops: Vec<_> = state
        .hops
        .iter()
        .map(|hop| {
            json!({
                "node": hop.node,
                "ingress_port": hop.ingress_port,
                "egress_port": hop.egress_port,
                "latency_seconds": hop.latency_ns.map(|nanos| f64::from(nanos) / 1e9),
                "queue_bytes": hop.queue_bytes,
            })
        })
        .collect();
    // A list of at most 64 hops is far below the bound of a structured value.
    if let Ok(hops) = Structured::new(hops.into()) {
        sink.set_structured(&path::HOPS, name, &hops);
    }
}

/// Writes the instance of a path: both addresses with a dash between them, and `_` for each colon.
pub(super) fn name((source, destination): PathKey, name: &mut String) {
    name.clear();
    put_address(source, name);
    name.push('-');
    put_address(destination, name);
}

fn put_address(address: IpAddr, name: &mut String) {
    let begin = name.len();
    // A string takes all.
    let _ = write!(name, "{address}");
    let own = name.split_off(begin);
    name.extend(own.chars().map(|c| if c == ':' { '_' } else { c }));
}
