//! The latest data of the nodes that wrote into traces.

use std::collections::BTreeMap;

/// The most nodes whose data is kept: those of the paths of a host, many times over.
const MAX_NODES: usize = 1024;

/// Time after which the data of a node that no trace names is dropped: some intervals of probes.
const KEEP_NS: u64 = 300 * 1_000_000_000;

/// The intervals of a node's own probes after which its data is dropped, if those are longer.
const KEEP_INTERVALS: u64 = 3;

/// The longest such interval.
const MAX_INTERVAL_NS: u64 = 3600 * 1_000_000_000;

/// The data of nodes, by their ids.
#[derive(Debug, Default)]
pub(super) struct NodeData(BTreeMap<u32, Latest>);

#[derive(Debug)]
struct Latest {
    data: u32,
    /// The time of the last trace.
    at: u64,
    /// The time between the last two.
    interval: u64,
}

impl Latest {
    fn is_kept(&self, now: u64) -> bool {
        let keep = self.interval.min(MAX_INTERVAL_NS).saturating_mul(KEEP_INTERVALS).max(KEEP_NS);
        now.saturating_sub(self.at) <= keep
    }
}

impl NodeData {
    /// Notes the data of a node. Returns false if that of another one was evicted for it: the one that was silent for longest.
    pub(super) fn note(&mut self, id: u32, data: u32, now: u64) -> bool {
        let known = self.0.get(&id).map(|known| now.saturating_sub(known.at));
        let interval = known.unwrap_or_default();
        let is_full = known.is_none() && self.0.len() >= MAX_NODES;
        if is_full {
            let oldest = self.0.iter().min_by_key(|(_, node)| node.at).map(|(id, _)| *id);
            oldest.map(|id| self.0.remove(&id));
        }
        self.0.insert(id, Latest { data, at: now, interval });
        !is_full
    }

    /// Drops the nodes that no trace has named for long.
    pub(super) fn drop_silent(&mut self, now: u64) {
        self.0.retain(|_, node| node.is_kept(now));
    }

    /// Returns the data of each node that a trace has named lately, by its id.
    pub(super) fn all(&self, now: u64) -> BTreeMap<u32, u32> {
        let kept = self.0.iter().filter(|(_, node)| node.is_kept(now));
        kept.map(|(id, node)| (*id, node.data)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_a_silent_node_goes() {
        let mut nodes = NodeData::default();
        assert!(nodes.note(7, 23, 0));
        assert_eq!(nodes.all(KEEP_NS), BTreeMap::from([(7, 23)]));
        assert_eq!(nodes.all(KEEP_NS + 1), BTreeMap::new());
        // A node with probes every hour stays for some hours.
        let hour = MAX_INTERVAL_NS;
        assert!(nodes.note(7, 24, hour));
        assert_eq!(nodes.all(4 * hour), BTreeMap::from([(7, 24)]));
        assert_eq!(nodes.all(4 * hour + 1), BTreeMap::new());
        nodes.drop_silent(4 * hour + 1);
        assert!(nodes.0.is_empty());
    }

    #[test]
    fn the_node_that_was_silent_for_longest_makes_room() {
        let mut nodes = NodeData::default();
        assert!((0..MAX_NODES as u32).all(|id| nodes.note(id, id, u64::from(id))));
        assert!(nodes.note(0, 5, 2000));
        assert!(!nodes.note(5000, 1, 2000), "another one is evicted");
        let all = nodes.all(2000);
        assert_eq!((all.len(), all.get(&0), all.get(&1)), (MAX_NODES, Some(&5), None));
    }
}
