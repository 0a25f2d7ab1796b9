//! Rows of topics that are mirrored from other nodes.

use skopos_query::{Described, Row};
use skopos_wire::{NodeState, Vertex};

/// The node of a mirrored topic.
pub(super) struct RemoteNode<'a> {
    pub(super) node: &'a str,
    /// Nanoseconds that its clock is ahead, as in [`Row`].
    pub(super) ahead: i64,
}

impl<'a> RemoteNode<'a> {
    pub(super) fn new(node: &'a str, state: &NodeState) -> Self {
        Self { node, ahead: state.clock_offset().unwrap_or_default() }
    }
}

pub(super) fn described<'a>(of: &RemoteNode<'a>, vertex: &'a Vertex) -> Described<'a> {
    let (description, publisher) = (&vertex.description, of.node);
    Described {
        topic: &description.topic,
        unit: description.unit,
        kind: description.kind,
        value_type: description.value_type,
        publisher,
    }
}

/// Shows the latest sample of a mirrored topic. Returns false if there is none.
#[inline]
pub(super) fn latest_row(
    of: &RemoteNode<'_>,
    vertex: &Vertex,
    visit: &mut dyn FnMut(&Row<'_>),
) -> bool {
    let Some(sample) = vertex.recent.last() else { return false };
    let (checked_at, ahead) = (vertex.checked_at, of.ahead);
    visit(&Row { of: described(of, vertex), sample: &sample, checked_at, ahead, age: None });
    true
}
