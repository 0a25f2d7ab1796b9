//! The facts of egress ports.

use std::fmt::Write as _;

use skopos_model::schema::port;

use super::facts::{FactSink, set_known};
use super::state::{PortKey, PortState};

/// Hands the facts of a port over. Its maxima begin anew.
pub(super) fn publish(name: &str, state: &mut PortState, sink: &mut dyn FactSink) {
    let seconds = |nanos: Option<u32>| nanos.map(|nanos| f64::from(nanos) / 1e9);
    sink.set(&port::PACKETS_TOTAL, name, state.packets.into());
    if !std::mem::take(&mut state.is_new) {
        // Without a packet nothing is known about the present.
        return;
    }
    set_known(sink, &port::QUEUE_BYTES, name, state.queue_bytes.map(u64::from));
    set_known(sink, &port::QUEUE_BYTES_MAX, name, state.queue_bytes_max.take().map(u64::from));
    set_known(sink, &port::LATENCY_SECONDS, name, seconds(state.latency_ns));
    set_known(sink, &port::LATENCY_SECONDS_MAX, name, seconds(state.latency_ns_max.take()));
    set_known(sink, &port::USED_RATIO, name, state.used_ppm.map(|ppm| f64::from(ppm) / 1e6));
}

/// Writes the instance of a port: the node, a dash and the number.
pub(super) fn name((node, port): PortKey, name: &mut String) {
    name.clear();
    let _ = write!(name, "{node}-{port}");
}
