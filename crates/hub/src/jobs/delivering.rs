//! The nodes whose agents deliver the facts of their jobs to this hub.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;

/// Time after its last request for which a node counts as one that delivers. An agent asks every five minutes at least.
const SILENCE: Duration = Duration::from_secs(600);

/// The most nodes: those of a large site, several times over.
const MAX_NODES: usize = 65_536;

/// The nodes, with the time of the last request of each. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delivering(Arc<Mutex<HashMap<String, Instant>>>);

impl Delivering {
    /// Notes a request of a node. Without room, the hub goes on recording the facts of the node itself.
    pub(super) fn note(&self, node: &str, now: Instant) {
        let mut nodes = self.nodes();
        if let Some(last) = nodes.get_mut(node) {
            *last = now;
            return;
        }
        if nodes.len() >= MAX_NODES {
            nodes.retain(|_, last| is_recent(*last, now));
        }
        if nodes.len() < MAX_NODES {
            nodes.insert(node.to_owned(), now);
        }
    }

    /// Returns true if the agent of a node delivers.
    pub(super) fn has(&self, node: &str, now: Instant) -> bool {
        self.nodes().get(node).is_some_and(|last| is_recent(*last, now))
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        unpoisoned(self.0.lock())
    }
}

fn is_recent(last: Instant, now: Instant) -> bool {
    now.saturating_duration_since(last) < SILENCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_silent_for_long_is_recorded_again() {
        let (nodes, now) = (Delivering::default(), Instant::now());
        nodes.note("n01", now);
        assert!(nodes.has("n01", now) && !nodes.has("n02", now));
        let later = now + SILENCE;
        assert!(!nodes.has("n01", later));
        nodes.note("n01", later);
        assert!(nodes.has("n01", later + SILENCE / 2));
        (0..MAX_NODES).for_each(|at| nodes.note(&format!("x{at}"), now));
        nodes.note("n03", later + SILENCE / 2);
        assert!(nodes.has("n01", later + SILENCE / 2) && nodes.has("n03", later + SILENCE / 2));
        assert_eq!(nodes.nodes().len(), 2, "silent nodes are forgotten");
    }
}
