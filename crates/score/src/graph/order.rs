use std::collections::{HashMap, HashSet};

use skopos_model::Topic;

use super::limits::MAX_HEIGHT;
use super::node::Node;
use super::table::Table;
use crate::error::Error;

/// The new ranks of an insight and of all insights above it.
pub(super) struct Ranks(pub(super) Vec<(u32, u8)>);

/// The state of a walk over all insights above a vertex.
struct Walk<'a> {
    table: &'a Table,
    /// The inputs of the new insight: reaching one of them closes a cycle.
    inputs: HashSet<u32>,
    seen: HashSet<u32>,
    /// The path to the current vertex.
    path: Vec<u32>,
    /// Visited vertices, each after all of its dependents.
    done: Vec<u32>,
}

/// Checks a new insight: `topic`, computed from `inputs`, is to become an input of `heads`. Returns
/// its own rank, which has no index yet, and the ranks of the others.
///
/// # Errors
/// Returns [`Error::Cycle`] with its path, or [`Error::Height`].
pub(super) fn newcomer(
    table: &Table,
    nodes: &[Option<Box<Node>>],
    topic: &Topic,
    inputs: &[u32],
    heads: &[u32],
) -> Result<(u8, Ranks), Error> {
    let done = above(table, topic, inputs, heads)?;
    let highest = inputs.iter().map(|&index| table.vertices[index as usize].rank).max();
    let own = up(highest.unwrap_or(0), topic)?;
    let mut ranks = HashMap::new();
    for &index in done.iter().rev() {
        let below = below(table, nodes, &ranks, index);
        let below = if heads.contains(&index) { below.max(own) } else { below };
        ranks.insert(index, up(below, topic)?);
    }
    Ok((own, Ranks(ranks.into_iter().collect())))
}

/// Computes the ranks above a removed vertex, whose dependents were `heads`.
pub(super) fn without(table: &Table, nodes: &[Option<Box<Node>>], heads: &[u32]) -> Ranks {
    let mut walk = Walk::new(table, &[]);
    for &head in heads {
        // A walk without inputs cannot find a cycle.
        let _ = walk.visit(head);
    }
    let mut ranks = HashMap::new();
    for &index in walk.done.iter().rev() {
        // Ranks only fall, so the bound holds.
        let rank = below(table, nodes, &ranks, index).saturating_add(1);
        ranks.insert(index, rank);
    }
    Ranks(ranks.into_iter().collect())
}

fn above(table: &Table, topic: &Topic, inputs: &[u32], heads: &[u32]) -> Result<Vec<u32>, Error> {
    let mut walk = Walk::new(table, inputs);
    for &head in heads {
        if walk.visit(head).is_err() {
            let between = walk.path.iter().map(|&index| table.topic(index).clone());
            let path = std::iter::once(topic.clone()).chain(between);
            return Err(Error::Cycle(path.chain([topic.clone()]).collect()));
        }
    }
    Ok(walk.done)
}

/// Returns the highest rank among the inputs of the insight at `index`.
fn below(table: &Table, nodes: &[Option<Box<Node>>], ranks: &HashMap<u32, u8>, index: u32) -> u8 {
    let Some(node) = &nodes[index as usize] else { return 0 };
    let matched = node.matched.iter().flat_map(|matched| matched.indexes());
    let refused = node.refused.iter().map(|(_, index, _)| index);
    let rank = |index: &u32| {
        let rank = ranks.get(index).copied();
        rank.unwrap_or_else(|| table.vertices[*index as usize].rank)
    };
    matched.chain(refused).map(rank).max().unwrap_or(0)
}

fn up(rank: u8, topic: &Topic) -> Result<u8, Error> {
    match rank + 1 {
        next if usize::from(next) <= MAX_HEIGHT => Ok(next),
        _ => Err(Error::Height(topic.clone())),
    }
}

/// The walk reached an input: its path is a cycle.
struct Closed;

impl<'a> Walk<'a> {
    fn new(table: &'a Table, inputs: &[u32]) -> Self {
        let inputs = inputs.iter().copied().collect();
        Self { table, inputs, seen: HashSet::new(), path: Vec::new(), done: Vec::new() }
    }

    /// Walks depth first. The depth is at most the height of the graph, [`MAX_HEIGHT`].
    fn visit(&mut self, index: u32) -> Result<(), Closed> {
        if !self.seen.insert(index) {
            return Ok(());
        }
        self.path.push(index);
        if self.inputs.contains(&index) {
            return Err(Closed);
        }
        let table = self.table;
        for edge in &table.vertices[index as usize].dependents {
            self.visit(edge.insight)?;
        }
        self.path.pop();
        self.done.push(index);
        Ok(())
    }
}
