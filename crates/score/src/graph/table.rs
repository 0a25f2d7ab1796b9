use std::collections::BTreeMap;
use std::ops::Bound;

use skopos_model::{Timestamp, Topic, TopicPattern};

use super::changes::ChangeCounter;
use super::id::{MAX_GENERATION, MAX_VERTICES, VertexId};
use crate::cell::Cell;
use crate::cell::CellChange;
use crate::error::Error;

/// All vertices. A free index is reused under another generation, and its cell is replaced only
/// then, so that `cells` stays a plain list.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) cells: Vec<Cell>,
    pub(super) vertices: Vec<Vertex>,
    topics: BTreeMap<Box<str>, u32>,
    free: Vec<u32>,
}

/// The state of a vertex apart from its value.
#[derive(Debug, Default)]
pub(super) struct Vertex {
    generation: u32,
    lives: bool,
    pub(super) is_insight: bool,
    /// The number of insights on the longest path from a fact up to the vertex, itself included; 0
    /// for a fact.
    pub(super) rank: u8,
    /// True while the vertex is in the list with which the next run begins.
    pub(super) pending: bool,
    /// True if dependents have to be recomputed and were not notified yet.
    pub(super) matters: bool,
    /// The edges to its dependents.
    pub(super) dependents: Vec<Edge>,
    pub(super) changes: ChangeCounter,
}

/// An edge to an insight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) insight: u32,
    pub(super) slot: u16,
    /// True if the insight does not see the vertex, because its unit differs or the input is at its
    /// limit.
    pub(super) refused: bool,
}

impl Vertex {
    #[inline]
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }
}

impl Table {
    /// Returns the index of `id`.
    #[inline]
    pub(super) fn index(&self, id: VertexId) -> Result<usize, Error> {
        match self.vertices.get(id.index()) {
            Some(vertex) if vertex.lives && vertex.generation == id.generation() => Ok(id.index()),
            _ => Err(Error::Gone(id)),
        }
    }

    #[inline]
    pub(super) fn id(&self, index: u32) -> VertexId {
        VertexId::new(index, self.vertices[index as usize].generation)
    }

    pub(super) fn len(&self) -> usize {
        self.topics.len()
    }

    pub(super) fn find(&self, topic: &str) -> Option<u32> {
        self.topics.get(topic).copied()
    }

    /// Returns the indexes of all vertices in the order of topics.
    pub(super) fn indexes(&self) -> impl Iterator<Item = u32> + '_ {
        self.topics.values().copied()
    }

    /// Returns the indexes of the vertices that `pattern` selects, in the order of topics.
    pub(super) fn select<'a>(
        &'a self,
        pattern: &'a TopicPattern,
    ) -> impl Iterator<Item = u32> + 'a {
        let text = pattern.as_str();
        // Every match begins with the text before the first star; but `a/**` matches `a`.
        let prefix = text.split('*').next().unwrap_or_default().trim_end_matches('/');
        let range = (Bound::Included(prefix), Bound::Unbounded);
        self.topics
            .range::<str, _>(range)
            .take_while(move |(topic, _)| topic.starts_with(prefix))
            .filter(move |(topic, _)| pattern.matches_str(topic))
            .map(|(_, index)| *index)
    }

    /// Returns true if there is room for one more vertex.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.vertices.len() < MAX_VERTICES
    }

    /// Adds `cell` and returns its index.
    pub(super) fn add(&mut self, cell: Cell, is_insight: bool) -> Result<u32, Error> {
        let topic = cell.topic().as_str();
        if self.topics.contains_key(topic) {
            return Err(Error::Exists(cell.topic().clone()));
        }
        let (index, generation) = match self.free.pop() {
            Some(index) => (index, self.vertices[index as usize].generation + 1),
            None if self.vertices.len() < MAX_VERTICES => (self.vertices.len() as u32, 0),
            None => return Err(Error::Full),
        };
        self.topics.insert(topic.into(), index);
        let vertex = Vertex { generation, lives: true, is_insight, ..Vertex::default() };
        if index as usize == self.vertices.len() {
            self.cells.push(cell);
            self.vertices.push(vertex);
        } else {
            self.cells[index as usize] = cell;
            self.vertices[index as usize] = vertex;
        }
        Ok(index)
    }

    /// Frees an index and returns the edges from it.
    pub(super) fn remove(&mut self, index: u32) -> Vec<Edge> {
        let at = index as usize;
        self.topics.remove(self.cells[at].topic().as_str());
        self.cells[at].clear();
        let vertex = &mut self.vertices[at];
        let generation = vertex.generation;
        let gone = std::mem::replace(vertex, Vertex { generation, ..Vertex::default() });
        if generation < MAX_GENERATION {
            self.free.push(index);
        }
        gone.dependents
    }

    /// Counts a change of the vertex at `index`.
    #[inline]
    pub(super) fn note(&mut self, index: usize, change: CellChange, time: Timestamp) {
        let vertex = &mut self.vertices[index];
        if change.changed {
            vertex.changes.count(time);
        }
        vertex.matters |= change.matters();
    }

    #[inline]
    pub(super) fn topic(&self, index: u32) -> &Topic {
        self.cells[index as usize].topic()
    }
}
