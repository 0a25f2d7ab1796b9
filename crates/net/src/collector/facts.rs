//! Hands the state of the collector over as facts.

use std::fmt::Write as _;
use std::net::IpAddr;

use serde_json::json;
use skopos_model::schema::{Family, Metric, int_node, path, port, telemetry};
use skopos_model::{Scalar, Structured};

use super::counts::CollectorCounts;
use super::state::{NodeState, PathKey, PathState, PortState, State};

/// The destination of facts.
pub trait FactSink {
    /// Sets a fact. `instance` is a segment of a topic, and empty for a family without instances.
    fn set(&mut self, metric: &'static Metric, instance: &str, value: Scalar);

    /// Sets a fact that is a list.
    fn set_structured(&mut self, metric: &'static Metric, instance: &str, value: &Structured);

    /// Removes the facts of an instance that is gone.
    fn remove(&mut self, family: &'static Family, instance: &str);
}

/// Hands everything over. The maxima begin anew.
pub(super) fn publish(state: &mut State, counts: &CollectorCounts, sink: &mut dyn FactSink) {
    let mut name = String::new();
    for key in state.paths.take_gone() {
        path_name(key, &mut name);
        sink.remove(&path::FAMILY, &name);
    }
    for key in state.ports.take_gone() {
        port_name(key, &mut name);
        sink.remove(&port::FAMILY, &name);
    }
    for key in state.nodes.take_gone() {
        node_name(key, &mut name);
        sink.remove(&int_node::FAMILY, &name);
    }
    for (key, path) in state.paths.iter_mut() {
        path_name(key, &mut name);
        publish_path(&name, path, sink);
    }
    for (key, port) in state.ports.iter_mut() {
        port_name(key, &mut name);
        publish_port(&name, port, sink);
    }
    for (key, node) in state.nodes.iter_mut() {
        node_name(key, &mut name);
        publish_node(&name, node, sink);
    }
    publish_counts(counts, sink);
}

fn publish_path(name: &str, state: &mut PathState, sink: &mut dyn FactSink) {
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
    set(sink, &path::LATENCY_SECONDS, name, seconds(state.latency_ns));
    set(sink, &path::LATENCY_SECONDS_MAX, name, seconds(state.latency_ns_max.take()));
    set(sink, &path::HOPS_LATENCY_SECONDS, name, seconds(state.hops_latency_ns));
    set(sink, &path::QUEUE_BYTES_MAX, name, state.queue_bytes_max.take().map(u64::from));
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

fn publish_port(name: &str, state: &mut PortState, sink: &mut dyn FactSink) {
    let seconds = |nanos: Option<u32>| nanos.map(|nanos| f64::from(nanos) / 1e9);
    sink.set(&port::PACKETS_TOTAL, name, state.packets.into());
    set(sink, &port::QUEUE_BYTES, name, state.queue_bytes.map(u64::from));
    set(sink, &port::QUEUE_BYTES_MAX, name, state.queue_bytes_max.take().map(u64::from));
    set(sink, &port::LATENCY_SECONDS, name, seconds(state.latency_ns));
    set(sink, &port::LATENCY_SECONDS_MAX, name, seconds(state.latency_ns_max.take()));
    set(sink, &port::USED_RATIO, name, state.used_ppm.map(|ppm| f64::from(ppm) / 1e6));
}

fn publish_node(name: &str, state: &NodeState, sink: &mut dyn FactSink) {
    sink.set(&int_node::REPORTS_TOTAL, name, state.reports.into());
    sink.set(&int_node::LOST_TOTAL, name, state.lost().into());
    sink.set(&int_node::DROPS_TOTAL, name, state.drops.into());
    sink.set(&int_node::CONGESTED_TOTAL, name, state.congested.into());
}

fn publish_counts(counts: &CollectorCounts, sink: &mut dyn FactSink) {
    for (metric, value) in [
        (&telemetry::DATAGRAMS_TOTAL, counts.datagrams),
        (&telemetry::REPORTS_TOTAL, counts.reports),
        (&telemetry::KERNEL_DROPS_TOTAL, counts.kernel_drops),
        (&telemetry::REFUSED_SOURCES_TOTAL, counts.refused_sources),
        (&telemetry::OVER_QUOTA_TOTAL, counts.over_quota),
        (&telemetry::BAD_TAGS_TOTAL, counts.bad_tags),
        (&telemetry::REPLAYS_TOTAL, counts.replays),
        (&telemetry::MALFORMED_TOTAL, counts.malformed),
        (&telemetry::BEYOND_BOUNDS_TOTAL, counts.beyond_bounds),
        (&telemetry::EVICTED_TOTAL, counts.evicted),
    ] {
        sink.set(metric, "", value.into());
    }
}

/// Sets a fact that is known.
fn set<T: Into<Scalar>>(
    sink: &mut dyn FactSink,
    metric: &'static Metric,
    name: &str,
    value: Option<T>,
) {
    if let Some(value) = value {
        sink.set(metric, name, value.into());
    }
}

/// Writes the instance of a path: both addresses with a dash between them, and `_` for each colon.
fn path_name((source, destination): PathKey, name: &mut String) {
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

fn port_name((node, port): (u32, u16), name: &mut String) {
    name.clear();
    let _ = write!(name, "{node}-{port}");
}

fn node_name(node: u32, name: &mut String) {
    name.clear();
    let _ = write!(name, "{node}");
}
