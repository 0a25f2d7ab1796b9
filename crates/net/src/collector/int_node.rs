//! The facts of nodes that report.

use std::fmt::Write as _;

use skopos_model::schema::int_node;

use super::facts::FactSink;
use super::state::NodeState;

/// Hands the facts of a node over.
pub(super) fn publish(name: &str, state: &NodeState, sink: &mut dyn FactSink) {
    sink.set(&int_node::REPORTS_TOTAL, name, state.reports.into());
    sink.set(&int_node::LOST_TOTAL, name, state.lost().into());
    sink.set(&int_node::DROPS_TOTAL, name, state.drops.into());
    sink.set(&int_node::CONGESTED_TOTAL, name, state.congested.into());
}

/// Writes the instance of a node: its id.
pub(super) fn name(node: u32, name: &mut String) {
    name.clear();
    let _ = write!(name, "{node}");
}
