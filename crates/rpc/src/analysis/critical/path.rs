//! The critical path of one request: the chain of steps of which each had to end before the next one could begin.
//!
//! The path is followed backwards from the end of the first call: at each moment it is in the call that ended last before,
//! and in the handler itself where no call of it was running.

use serde::Serialize;

use crate::analysis::request::tree::Tree;

/// The deepest path. A deeper request is followed down to here, and the rest counts as the call's own time.
const MAX_DEPTH: usize = 512;

/// The part of a call in which the path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// From the begin of the call until it arrives at the target: serialisation, network.
    Request,
    /// In the queue of the target.
    Queue,
    /// In the handler, or in a local step, outside of its own calls.
    Execution,
    /// From the end of the handler until the call ends at the origin.
    Response,
    /// In a call of which only the origin's side is known.
    Unseen,
}

impl Part {
    /// All parts, in the order of a call.
    pub const ALL: [Self; 5] =
        [Self::Request, Self::Queue, Self::Execution, Self::Response, Self::Unseen];

    /// Returns the name: `queue`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Queue => "queue",
            Self::Execution => "execution",
            Self::Response => "response",
            Self::Unseen => "unseen",
        }
    }
}

/// A stretch of a critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Position of the call in the tree.
    pub node: usize,
    /// The part of the call.
    pub part: Part,
    /// Begin on the common clock.
    pub from: i64,
    /// End on the common clock.
    pub to: i64,
}

/// Returns the critical path of the first root of a request, from its begin to its end, without gaps.
pub fn critical_path(tree: &Tree) -> Vec<Segment> {
    let mut segments = Vec::new();
    if let Some(root) = tree.roots.first() {
        let until = tree.nodes[*root].end;
        walk(tree, *root, until, 0, &mut segments);
    }
    segments.reverse();
    segments
}

/// Adds the segments of a call up to `until`, the last first.
fn walk(tree: &Tree, at: usize, until: i64, depth: usize, segments: &mut Vec<Segment>) {
    let node = &tree.nodes[at];
    let mut time = until.min(node.end);
    let mut children: Vec<usize> =
        if depth < MAX_DEPTH { node.children.clone() } else { Vec::new() };
    children.sort_by_key(|child| tree.nodes[*child].end);
    while let Some(child) = children.pop() {
        let call = &tree.nodes[child];
        // A call that goes on beyond this moment, or begins before its parent, is not what the parent waited for.
        if call.end > time || call.start < node.start || call.start >= call.end {
            continue;
        }
        own(tree, at, call.end, time, segments);
        walk(tree, child, call.end, depth + 1, segments);
        time = call.start;
    }
    own(tree, at, node.start, time, segments);
}

/// Adds a stretch of a call itself, divided by its parts.
fn own(tree: &Tree, at: usize, from: i64, to: i64, segments: &mut Vec<Segment>) {
    let node = &tree.nodes[at];
    let parts = match (node.target, node.is_local()) {
        (Some(_), _) => vec![
            (Part::Response, node.ended, node.end),
            (Part::Execution, node.begun, node.ended),
            (Part::Queue, node.arrived, node.begun),
            (Part::Request, node.start, node.arrived),
        ],
        (None, true) => vec![(Part::Execution, node.start, node.end)],
        (None, false) => vec![(Part::Unseen, node.start, node.end)],
    };
    for (part, first, last) in parts {
        let (from, to) = (from.max(first), to.min(last));
        if from < to {
            segments.push(Segment { node: at, part, from, to });
        }
    }
}
