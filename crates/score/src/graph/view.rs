use skopos_model::{Kind, Timestamp, Topic, Unit};

use super::node::{Cost, Node};
use super::{Graph, Matched, VertexId};
use crate::{Cell, Error, Input, Outcome, Unknown};

/// A vertex, seen from outside.
#[derive(Clone, Copy)]
pub struct VertexView<'a> {
    graph: &'a Graph,
    index: u32,
}

/// One input of an insight, seen from outside.
#[derive(Clone, Copy)]
pub struct InputView<'a> {
    graph: &'a Graph,
    matched: &'a Matched,
}

impl Graph {
    /// What there is to know of a vertex.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn view(&self, id: VertexId) -> Result<VertexView<'_>, Error> {
        let index = self.table.index(id)? as u32;
        Ok(VertexView { graph: self, index })
    }

    /// All vertices, in the order of their topics.
    pub fn views(&self) -> impl Iterator<Item = VertexView<'_>> {
        self.table.indexes().map(|index| VertexView { graph: self, index })
    }
}

impl<'a> VertexView<'a> {
    /// Its id.
    pub fn id(&self) -> VertexId {
        self.graph.table.id(self.index)
    }

    /// All that is known of its value.
    pub fn cell(&self) -> &'a Cell {
        &self.graph.table.cells[self.index as usize]
    }

    /// Its topic.
    pub fn topic(&self) -> &'a Topic {
        self.cell().topic()
    }

    /// The unit of its values.
    pub fn unit(&self) -> Unit {
        self.cell().unit()
    }

    /// How its values move.
    pub fn kind(&self) -> Kind {
        self.cell().kind()
    }

    /// Its latest value, or why there is none; `None` before the first.
    pub fn outcome(&self) -> Option<&'a Outcome> {
        self.cell().outcome()
    }

    /// Since when that holds.
    pub fn since(&self) -> Timestamp {
        self.cell().since()
    }

    /// When it was looked at; of an insight, when its oldest needed input was.
    pub fn checked_at(&self) -> Timestamp {
        self.cell().checked_at()
    }

    /// True if it is computed.
    pub fn is_insight(&self) -> bool {
        self.node().is_some()
    }

    /// Its name, for people; `None` for a fact.
    pub fn name(&self) -> Option<&'a str> {
        Some(&self.node()?.spec.name)
    }

    /// How it is computed; `None` for a fact.
    pub fn formula(&self) -> Option<&'a str> {
        Some(&self.node()?.spec.formula)
    }

    /// How many insights lie on the longest path from a fact up to it, itself included; 0 of a fact.
    pub fn height(&self) -> u8 {
        self.graph.table.vertices[self.index as usize].rank
    }

    /// What it is computed from.
    pub fn inputs(&self) -> impl Iterator<Item = InputView<'a>> {
        let graph = self.graph;
        let matched = self.node().into_iter().flat_map(|node| &node.matched);
        matched.map(move |matched| InputView { graph, matched })
    }

    /// The insights that are computed from it, each once.
    pub fn dependents(&self) -> Vec<VertexId> {
        let edges = &self.graph.table.vertices[self.index as usize].dependents;
        let mut ids: Vec<_> = edges.iter().map(|e| self.graph.table.id(e.insight)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Topics that match an input of it and that it does not take, with the reason.
    pub fn refused(&self) -> impl Iterator<Item = (VertexId, &'a Unknown)> {
        let graph = self.graph;
        let refused = self.node().into_iter().flat_map(|node| &node.refused);
        refused.map(move |(_, index, why)| (graph.table.id(*index), why))
    }

    /// The needed input that was looked at longest ago; its age is the insight's. `None` for a fact,
    /// and for an insight none of whose inputs is known.
    pub fn oldest(&self) -> Option<VertexId> {
        let (index, _) = self.node()?.oldest?;
        Some(self.graph.table.id(index))
    }

    /// What it has cost; `None` for a fact.
    pub fn cost(&self) -> Option<Cost> {
        Some(self.node()?.cost)
    }

    /// How often its value has changed.
    pub fn changes(&self) -> u64 {
        self.graph.table.vertices[self.index as usize].changes.total()
    }

    /// Changes a second over the last minute; `None` while nothing is known.
    pub fn changes_per_second(&self, now: Timestamp) -> Option<f64> {
        self.graph.table.vertices[self.index as usize].changes.per_second(now)
    }

    fn node(&self) -> Option<&'a Node> {
        self.graph.nodes[self.index as usize].as_deref()
    }
}

impl<'a> InputView<'a> {
    /// What was asked for.
    pub fn input(&self) -> &'a Input {
        self.matched.input()
    }

    /// What stands for it, in the order of topics.
    pub fn matched(&self) -> impl ExactSizeIterator<Item = VertexView<'a>> {
        let graph = self.graph;
        self.matched.indexes().iter().map(move |&index| VertexView { graph, index })
    }

    /// Why nothing does, if that is known.
    pub fn missing(&self) -> Option<&'a str> {
        self.matched.missing()
    }
}
