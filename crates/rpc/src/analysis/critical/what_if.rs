//! Predicts the duration of a request if one callpath were faster.
//!
//! The request is played again: a call begins as long after the event before it as it did, where that event is the end of
//! the last call of the same handler that had ended, or the begin of the handler. The own time of the calls of the
//! callpath is shortened. Calls that overlapped still overlap, and the end of a handler waits for the calls for which it
//! waited.

use crate::analysis::names::PathId;
use crate::analysis::request::tree::Tree;

/// The deepest request that is played again.
const MAX_DEPTH: usize = 512;

/// Returns the duration of the first root in ns if the own time of `path` were `factor` times as long.
pub fn predicted_ns(tree: &Tree, path: PathId, factor: f64) -> f64 {
    let play = Play { tree, path, factor };
    tree.roots.first().map_or(0.0, |root| play.duration(*root, 0))
}

struct Play<'t> {
    tree: &'t Tree,
    path: PathId,
    factor: f64,
}

impl Play<'_> {
    fn duration(&self, at: usize, depth: usize) -> f64 {
        let node = &self.tree.nodes[at];
        let factor = if node.path == self.path { self.factor } else { 1.0 };
        let length = node.duration() as f64;
        if node.children.is_empty() || depth >= MAX_DEPTH {
            return length * factor;
        }
        // Old and new end of each call so far, in ns after the begin of this one; the begin itself is the first event.
        let mut ends: Vec<(f64, f64)> = vec![(0.0, 0.0)];
        for child in &node.children {
            let call = &self.tree.nodes[*child];
            let start = call.start.saturating_sub(node.start) as f64;
            let (old, new) = before(&ends, start);
            let begin = new + (start - old).max(0.0) * factor;
            ends.push((start + call.duration() as f64, begin + self.duration(*child, depth + 1)));
        }
        let (old, new) = before(&ends, length);
        new + (length - old) * factor
    }
}

/// The last event that had ended at a time.
fn before(ends: &[(f64, f64)], time: f64) -> (f64, f64) {
    let ended = ends.iter().filter(|(old, _)| *old <= time);
    ended.copied().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 0.0))
}
