use std::collections::{HashMap, HashSet};

use skopos_model::Topic;

use super::node::Node;
use super::spec::MAX_HEIGHT;
use super::table::Table;
use crate::Error;

/// The ranks of an insight and of all above it, as they will be.
pub(super) struct Ranks(pub(super) Vec<(u32, u8)>);

/// What the walk over everything above an insight needs to know.
struct Walk<'a> {
    table: &'a Table,
    /// What the insight is computed from: the walk must not come by these.
    inputs: HashSet<u32>,
    seen: HashSet<u32>,
    /// The way to where the walk is.
    path: Vec<u32>,
    /// Each after all that are computed from it.
    done: Vec<u32>,
}

/// Checks an insight that is not in the graph yet: `topic`, computed from `inputs`, is to become an
/// input of `heads`. The first of the ranks is its own, of whom there is no place yet.
///
/// # Errors
/// [`Error::Cycle`] with its path, [`Error::Height`].
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

/// The ranks above a vertex that has gone, whose dependents were `heads`.
pub(super) fn without(table: &Table, nodes: &[Option<Box<Node>>], heads: &[u32]) -> Ranks {
    let mut walk = Walk::new(table, &[]);
    for &head in heads {
        // Without inputs to come by there is no cycle to find.
        let _ = walk.visit(head);
    }
    let mut ranks = HashMap::new();
    for &index in walk.done.iter().rev() {
        // What is left is lower than what was, so the bound holds.
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

/// The highest rank among what the insight at `index` is computed from.
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

/// The walk came by an input: its path is a cycle.
struct Closed;

impl<'a> Walk<'a> {
    fn new(table: &'a Table, inputs: &[u32]) -> Self {
        let inputs = inputs.iter().copied().collect();
        Self { table, inputs, seen: HashSet::new(), path: Vec::new(), done: Vec::new() }
    }

    /// Depth first. As deep as the graph is high, so at most [`MAX_HEIGHT`].
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
