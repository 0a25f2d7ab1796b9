//! The facts of paths.

use std::fmt::Write as _;
use std::net::IpAddr;

use serde_json::{Value, json};
use skopos_model::Structured;
use skopos_model::schema::path;

use super::facts::{FactSink, set_known};
use super::state::{PathKey, PathState};
use crate::int::Hop;

/// Hands the facts of a path over. Its maxima begin anew. Returns the number of hops that did not fit its list.
pub(super) fn publish(name: &str, state: &mut PathState, sink: &mut dyn FactSink) -> u64 {
    sink.set(&path::PACKETS_TOTAL, name, state.packets.into());
    sink.set(&path::LOST_TOTAL, name, state.lost().into());
    sink.set(&path::CHANGES_TOTAL, name, state.changes.into());
    sink.set(&path::MTU_EXCEEDED_TOTAL, name, state.mtu_exceeded.into());
    sink.set(&path::HOPS_EXCEEDED_TOTAL, name, state.hops_exceeded.into());
    let seconds = |nanos: Option<u64>| nanos.map(|nanos| nanos as f64 / 1e9);
    // Packets that came late are in the maxima alone.
    set_known(sink, &path::LATENCY_SECONDS_MAX, name, seconds(state.latency_ns_max.take()));
    set_known(sink, &path::QUEUE_BYTES_MAX, name, state.queue_bytes_max.take().map(u64::from));
    if !std::mem::take(&mut state.is_new) {
        // Without a packet nothing is known about the present.
        return 0;
    }
    set_known(sink, &path::LATENCY_SECONDS, name, seconds(state.latency_ns));
    set_known(sink, &path::HOPS_LATENCY_SECONDS, name, seconds(state.hops_latency_ns));
    let mut fitting = state.hops.len();
    loop {
        match Structured::new(state.hops[..fitting].iter().map(record).collect()) {
            Ok(hops) => {
                sink.set_structured(&path::HOPS, name, &hops);
                break;
            }
            Err(_) => fitting -= fitting.div_ceil(LEFT_OUT_AT_ONCE),
        }
    }
    (state.hops.len() - fitting) as u64
}

/// Leaves out an eighth of the hops that do not fit at once, so that few lists are made.
const LEFT_OUT_AT_ONCE: usize = 8;

fn record(hop: &Hop) -> Value {
    json!({
        "node": hop.node,
        "ingress_port": hop.ingress_port,
        "egress_port": hop.egress_port,
        "latency_seconds": hop.latency_ns.map(|nanos| f64::from(nanos) / 1e9),
        "queue_bytes": hop.queue_bytes,
    })
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

#[cfg(test)]
mod tests {
    use skopos_model::Scalar;
    use skopos_model::schema::{Family, Metric};

    use super::*;

    /// Keeps the last list.
    #[derive(Default)]
    struct Lists(Option<Structured>);

    impl FactSink for Lists {
        fn set(&mut self, _: &'static Metric, _: &str, _: Scalar) {}

        fn set_structured(&mut self, _: &'static Metric, _: &str, value: &Structured) {
            self.0 = Some(value.clone());
        }

        fn remove(&mut self, _: &'static Family, _: &str) {}
    }

    #[test]
    fn hops_that_do_not_fit_a_list_are_counted() {
        let known = Some(1_000_000_000);
        let hop = Hop { node: known, latency_ns: known, queue_bytes: known, ..Hop::default() };
        for (hops, all_fit) in [(3, true), (64, false)] {
            let mut state = PathState::default();
            (state.is_new, state.hops) = (true, vec![hop; hops]);
            let mut lists = Lists::default();
            let left_out = publish("a-b", &mut state, &mut lists) as usize;
            let list = lists.0.expect("a list");
            assert_eq!(list.as_json().as_array().expect("a list").len(), hops - left_out);
            assert_eq!(left_out == 0, all_fit, "{left_out}");
            assert!(left_out < hops / 2, "{left_out}");
        }
    }
}
