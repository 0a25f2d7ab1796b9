//! The samples that a reader of all topics has read, so that it finds those that are new.

use std::collections::HashMap;
use std::sync::Arc;

use skopos_model::{Timestamp, Topic};
use skopos_query::{Row, Source as _, Wanted};
use skopos_wire::Node;

use super::remote::{RemoteNode, latest_row};
use crate::local::Local;

/// The samples that were read.
#[derive(Debug, Default)]
pub(super) struct ReadSamples {
    /// The topics of this machine with the times of their samples, by place.
    local: Vec<(Topic, Timestamp)>,
    others: Vec<SeenNode>,
}

/// The samples of a node that were read.
#[derive(Debug)]
struct SeenNode {
    node: Arc<Node>,
    /// The two counts of its mirror.
    arrangement: u64,
    samples_total: u64,
    /// Places of its vertices, by index.
    places: HashMap<u32, usize>,
}

impl ReadSamples {
    /// Shows new samples of this machine. Returns false if other topics have samples than before.
    fn local_changed(&mut self, local: &Local, visit: &mut dyn FnMut(usize, &Row<'_>)) -> bool {
        let (mut place, mut is_same) = (0, true);
        local.latest(&Wanted::All, &mut |row| {
            match self.local.get_mut(place) {
                Some((topic, time)) if topic == row.of.topic => {
                    if *time != row.sample.time {
                        *time = row.sample.time;
                        visit(place, row);
                    }
                }
                _ => is_same = false,
            }
            place += 1;
        });
        is_same && place == self.local.len()
    }

    /// Shows the latest samples of this machine and of these nodes.
    pub(super) fn all(
        &mut self,
        local: &Local,
        nodes: Vec<Arc<Node>>,
        visit: &mut dyn FnMut(&Row<'_>),
    ) {
        self.local.clear();
        local.latest(&Wanted::All, &mut |row| {
            self.local.push((row.of.topic.clone(), row.sample.time));
            visit(row);
        });
        let mut next = self.local.len();
        self.others.clear();
        for node in nodes {
            let state = node.state();
            let (of, mut places) = (RemoteNode::new(node.name(), &state), HashMap::new());
            for (index, vertex) in state.mirror.indexed() {
                if latest_row(&of, vertex, visit) {
                    places.insert(index, next);
                    next += 1;
                }
            }
            let (arrangement, samples_total) =
                (state.mirror.arrangement(), state.mirror.samples_total());
            drop(state);
            self.others.push(SeenNode { node, arrangement, samples_total, places });
        }
    }

    /// Shows new samples with their places, as [`skopos_query::LatestReader::changed`] describes it.
    pub(super) fn changed(
        &mut self,
        local: &Local,
        nodes: &[Arc<Node>],
        visit: &mut dyn FnMut(usize, &Row<'_>),
    ) -> bool {
        let is_same = nodes.len() == self.others.len()
            && nodes.iter().zip(&self.others).all(|(node, seen)| Arc::ptr_eq(node, &seen.node));
        if !is_same || !self.local_changed(local, visit) {
            return false;
        }
        self.others.iter_mut().all(|seen| seen.changed(visit))
    }
}

impl SeenNode {
    /// Shows new samples of the node. Returns false if other topics have samples than before.
    fn changed(&mut self, visit: &mut dyn FnMut(usize, &Row<'_>)) -> bool {
        let state = self.node.state();
        let mirror = &state.mirror;
        if mirror.arrangement() != self.arrangement {
            return false;
        }
        let of = RemoteNode::new(self.node.name(), &state);
        let mut show = |(index, vertex)| match self.places.get(&index) {
            Some(place) => latest_row(&of, vertex, &mut |row| visit(*place, row)),
            // It has no sample.
            None => true,
        };
        let is_whole = match mirror.changed_since(self.samples_total) {
            Some(mut changed) => changed.all(&mut show),
            None => mirror.indexed().all(&mut show),
        };
        self.samples_total = mirror.samples_total();
        is_whole
    }
}
