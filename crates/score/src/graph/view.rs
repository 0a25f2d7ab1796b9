use skopos_model::{Kind, Timestamp, Topic, Unit};

use super::Graph;
use super::id::VertexId;
use super::node::{Cost, Node};
use crate::cell::Cell;
use crate::error::Error;
use crate::input::Input;
use crate::matched::Matched;
use crate::unknown::{Outcome, Unknown};

/// A read-only view of a vertex.
#[derive(Clone, Copy)]
pub struct VertexView<'a> {
    graph: &'a Graph,
    index: u32,
}

/// A read-only view of one input of an insight.
#[derive(Clone, Copy)]
pub struct InputView<'a> {
    graph: &'a Graph,
    matched: &'a Matched,
}

impl Graph {
    /// Returns the view of a vertex.
    ///
    /// # Errors
    /// Returns [`Error::Gone`].
    pub fn view(&self, id: VertexId) -> Result<VertexView<'_>, Error> {
        let index = self.table.index(id)? as u32;
        Ok(VertexView { graph: self, index })
    }

    /// Returns the views of all vertices in the order of topics.
    pub fn views(&self) -> impl Iterator<Item = VertexView<'_>> {
        self.table.indexes().map(|index| VertexView { graph: self, index })
    }
}

impl<'a> VertexView<'a> {
    /// Returns the id.
    pub fn id(&self) -> VertexId {
        self.graph.table.id(self.index)
    }

    /// Returns the cell with the value.
    pub fn cell(&self) -> &'a Cell {
        &self.graph.table.cells[self.index as usize]
    }

    /// Returns the topic.
    pub fn topic(&self) -> &'a Topic {
        self.cell().topic()
    }

    /// Returns the unit of the values.
    pub fn unit(&self) -> Unit {
        self.cell().unit()
    }

    /// Returns the kind of the values.
    pub fn kind(&self) -> Kind {
        self.cell().kind()
    }

    /// Returns the latest value, or why it is unknown; `None` before the first.
    pub fn outcome(&self) -> Option<&'a Outcome> {
        self.cell().outcome()
    }

    /// Returns the time since which the outcome holds.
    pub fn since(&self) -> Timestamp {
        self.cell().since()
    }

    /// Returns the time of the last poll; for an insight, that of its oldest needed input.
    pub fn checked_at(&self) -> Timestamp {
        self.cell().checked_at()
    }

    /// Returns true for an insight.
    pub fn is_insight(&self) -> bool {
        self.node().is_some()
    }

    /// Returns the name for people; `None` for a fact.
    pub fn name(&self) -> Option<&'a str> {
        Some(&self.node()?.spec.name)
    }

    /// Returns the formula; `None` for a fact.
    pub fn formula(&self) -> Option<&'a str> {
        Some(&self.node()?.spec.formula)
    }

    /// Returns the number of insights on the longest path from a fact up to this vertex, itself
    /// included; 0 for a fact.
    pub fn height(&self) -> u8 {
        self.graph.table.vertices[self.index as usize].rank
    }

    /// Returns the inputs.
    pub fn inputs(&self) -> impl Iterator<Item = InputView<'a>> {
        let graph = self.graph;
        let matched = self.node().into_iter().flat_map(|node| &node.matched);
        matched.map(move |matched| InputView { graph, matched })
    }

    /// Returns the insights that are computed from this vertex, each once.
    pub fn dependents(&self) -> Vec<VertexId> {
        let edges = &self.graph.table.vertices[self.index as usize].dependents;
        let mut ids: Vec<_> = edges.iter().map(|e| self.graph.table.id(e.insight)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Returns the topics that match an input and are refused, with the reason.
    pub fn refused(&self) -> impl Iterator<Item = (VertexId, &'a Unknown)> {
        let graph = self.graph;
        let refused = self.node().into_iter().flat_map(|node| &node.refused);
        refused.map(move |(_, index, why)| (graph.table.id(*index), why))
    }

    /// Returns the needed input that was polled longest ago; its age is the age of the insight.
    /// `None` for a fact, and for an insight without a known input.
    pub fn oldest(&self) -> Option<VertexId> {
        let (index, _) = self.node()?.oldest?;
        Some(self.graph.table.id(index))
    }

    /// Returns the cost; `None` for a fact.
    pub fn cost(&self) -> Option<Cost> {
        Some(self.node()?.cost)
    }

    /// Returns the number of changes of the value.
    pub fn changes(&self) -> u64 {
        self.graph.table.vertices[self.index as usize].changes.total()
    }

    /// Returns the changes per second over the last minute; `None` while the rate is unknown.
    pub fn changes_per_second(&self, now: Timestamp) -> Option<f64> {
        self.graph.table.vertices[self.index as usize].changes.per_second(now)
    }

    fn node(&self) -> Option<&'a Node> {
        self.graph.nodes[self.index as usize].as_deref()
    }
}

impl<'a> InputView<'a> {
    /// Returns the declaration.
    pub fn input(&self) -> &'a Input {
        self.matched.input()
    }

    /// Returns the matching vertices in the order of topics.
    pub fn matched(&self) -> impl ExactSizeIterator<Item = VertexView<'a>> {
        let graph = self.graph;
        self.matched.indexes().iter().map(move |&index| VertexView { graph, index })
    }

    /// Returns the reason why no vertex matches, if it is known.
    pub fn missing(&self) -> Option<&'a str> {
        self.matched.missing()
    }
}
