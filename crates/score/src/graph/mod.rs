//! The graph of facts and insights: it recomputes insights when an input changes.
//!
//! A vertex is a fact, whose value a caller sets, or an insight, which is computed from other
//! vertices. Patterns select the inputs: a vertex that is added later joins by itself, and a
//! removed vertex leaves.
//!
//! # Invariants
//! - A run evaluates an insight at most once, after all of its inputs, and only if the value or the
//!   rate of one of them changed.
//! - An insight is as old as its oldest needed input, through all layers, and names that input.
//!   Without a needed input it is unknown.
//! - The graph never has a cycle: an insight that would close one is refused, and the error names
//!   the path.
//! - An id never refers to another vertex.
//! - A run allocates nothing of its own once every insight has run.
//!
//! Read in this order: `limits`, `spec` for the declaration of an insight, `table` and `node` for
//! the stored state, `join` for how vertices find each other, `order` for why there are no cycles,
//! `run` for the reaction to a change, and `view` for the public view.
//!
//! ```
//! use skopos_model::{Kind, Scalar, Timestamp, Unit, Value, ValueType};
//! use skopos_score::{Graph, Input, Inputs, Insight, InsightSpec, Outcome};
//!
//! struct Sum;
//! impl Insight for Sum {
//!     fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome {
//!         let sum: Result<f64, _> = inputs.all(0).iter().map(|cell| cell.number()).sum();
//!         Ok(Value::F64(sum?))
//!     }
//! }
//!
//! let mut graph = Graph::default();
//! graph.add_insight(
//!     InsightSpec {
//!         topic: "n01/fs/total_bytes".parse()?,
//!         unit: Unit::BYTES,
//!         kind: Kind::Gauge,
//!         value_type: ValueType::F64,
//!         inputs: vec![Input {
//!             name: "available".into(),
//!             pattern: "n01/fs/*/available_bytes".into(),
//!             unit: Some(Unit::BYTES),
//!             needed: true,
//!         }],
//!         name: "space left".into(),
//!         formula: "sum of available".into(),
//!     },
//!     Box::new(Sum),
//! )?;
//! let now = Timestamp::from_nanos(1);
//! for (name, bytes) in [("a", 3), ("b", 4)] {
//!     let topic = format!("n01/fs/{name}/available_bytes").parse()?;
//!     let fact = graph.add_fact(topic, Unit::BYTES, Kind::Gauge)?;
//!     graph.set(fact, now, Scalar::U64(bytes))?;
//! }
//! let mut outcomes = Vec::new();
//! graph.run(now, &mut |computed| outcomes.push(computed.outcome.clone()));
//! assert_eq!(outcomes, [Ok(Value::F64(7.0))]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod id;
mod limits;
mod spec;
mod table;
mod changes;
mod node;
mod missing;
mod input_index;
mod order;
mod join;
mod run;
mod view;

use std::time::Duration;

use skopos_model::{Kind, Scalar, Timestamp, Topic, Unit, Value};

use crate::cell::{Cell, CellChange};
use crate::error::Error;
use crate::insight::Insight;
use crate::unknown::Unknown;

pub use id::{MAX_VERTICES, VertexId};
pub use limits::{MAX_HEIGHT, MAX_INPUTS, MAX_MATCHED};
pub use node::Cost;
pub use run::{Computed, RunStats, TIMED_EVERY};
pub use spec::InsightSpec;
pub use view::{InputView, VertexView};

use input_index::InputIndex;
use missing::Missing;
use node::Node;
use table::Table;

/// Facts, and the insights that are computed from them.
#[derive(Default)]
pub struct Graph {
    table: Table,
    /// Parallel to the table: `None` for a fact.
    nodes: Vec<Option<Box<Node>>>,
    input_index: InputIndex,
    missing: Missing,
    /// The vertices with which the next run begins.
    pending: Vec<u32>,
    /// Insights to run, by rank; empty between runs, and kept for their capacity.
    queue: Vec<Vec<u32>>,
    /// Insights whose outcome may change by time alone.
    on_time: Vec<u32>,
    resets: u64,
}

impl Graph {
    /// Adds the vertex of a fact. It joins the insights that match it.
    ///
    /// # Errors
    /// Returns [`Error::Exists`] or [`Error::Full`].
    pub fn add_fact(&mut self, topic: Topic, unit: Unit, kind: Kind) -> Result<VertexId, Error> {
        let index = self.table.add(Cell::new(topic, unit, kind), false)?;
        self.make_room(index);
        self.offer(index);
        Ok(self.table.id(index))
    }

    /// Adds the vertex of an insight and joins the existing vertices that match its inputs. The
    /// next run computes it.
    ///
    /// # Errors
    /// Returns [`Error::Exists`], [`Error::Full`] or an error of its inputs; the graph is then
    /// unchanged. If the new vertex matches an input of an existing insight and has another unit,
    /// that is not an error: the existing insight becomes unknown.
    pub fn add_insight(
        &mut self,
        spec: InsightSpec,
        insight: Box<dyn Insight>,
    ) -> Result<VertexId, Error> {
        let index = self.admit(spec, insight)?;
        Ok(self.table.id(index))
    }

    /// Removes a vertex. Its dependents are computed again without it.
    ///
    /// # Errors
    /// Returns [`Error::Gone`].
    pub fn remove(&mut self, id: VertexId) -> Result<(), Error> {
        let index = self.table.index(id)?;
        self.dismiss(index as u32);
        Ok(())
    }

    /// Sets a number that was measured at `time`. Returns true if dependents have to be recomputed.
    /// It costs a few nanoseconds and allocates nothing.
    ///
    /// # Errors
    /// Returns [`Error::Gone`], or [`Error::Computed`] for an insight.
    #[inline]
    pub fn set(&mut self, id: VertexId, time: Timestamp, value: Scalar) -> Result<bool, Error> {
        self.change(id, time, |cell| cell.take_scalar(time, value))
    }

    /// Does the same as [`set`](Self::set) for any value.
    ///
    /// # Errors
    /// Fails as [`set`](Self::set) does.
    pub fn set_value(
        &mut self,
        id: VertexId,
        time: Timestamp,
        value: Value,
    ) -> Result<bool, Error> {
        self.change(id, time, |cell| cell.take_outcome(time, None, Ok(value)))
    }

    /// Does the same as [`set`](Self::set) for a fact that could not be measured.
    ///
    /// # Errors
    /// Fails as [`set`](Self::set) does.
    pub fn set_unknown(
        &mut self,
        id: VertexId,
        time: Timestamp,
        why: Unknown,
    ) -> Result<bool, Error> {
        self.change(id, time, |cell| cell.take_outcome(time, None, Err(why)))
    }

    /// Records why topics are missing: `what` is the family of a skipped sensor, or a pattern.
    /// Insights without these inputs give this reason.
    pub fn set_missing(&mut self, what: &str, reason: &str) {
        self.missing.set(what, reason);
        self.update_missing();
    }

    /// Removes the reason that [`set_missing`](Self::set_missing) recorded for `what`.
    pub fn clear_missing(&mut self, what: &str) {
        self.missing.clear(what);
        self.update_missing();
    }

    /// Makes an insight unknown while its oldest needed input was polled longer than `max_age` ago;
    /// `None` removes the limit.
    ///
    /// # Errors
    /// Returns [`Error::Gone`], or [`Error::NotComputed`] for a fact.
    pub fn limit_age(&mut self, id: VertexId, max_age: Option<Duration>) -> Result<(), Error> {
        let index = self.table.index(id)?;
        let Some(node) = &mut self.nodes[index] else {
            return Err(Error::NotComputed(self.table.cells[index].topic().clone()));
        };
        node.max_age = max_age;
        node.dirty = true;
        let on_time = max_age.is_some() || node.timed;
        let index = index as u32;
        self.on_time.retain(|&other| other != index);
        if on_time {
            self.on_time.push(index);
        }
        self.wait_for_run(index);
        Ok(())
    }

    /// Returns the vertex of a topic.
    pub fn find(&self, topic: &str) -> Option<VertexId> {
        self.table.find(topic).map(|index| self.table.id(index))
    }

    /// Returns the number of vertices.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true if there are no vertices.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of times that counters fell, over all vertices that ever existed.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Moves all times back by `by`, as the clock of the caller was: ages stay as they are, and a source that is not
    /// polled any more does not look fresh until the clock has caught up.
    pub fn clock_set_back(&mut self, by: Duration) {
        self.table.cells.iter_mut().for_each(|cell| cell.set_back(by));
        self.table.vertices.iter_mut().for_each(|vertex| vertex.changes.set_back(by));
        self.nodes.iter_mut().flatten().for_each(|node| node.set_back(by));
    }

    /// Changes the cell of a fact and notes its dependents for the next run.
    #[inline]
    fn change(
        &mut self,
        id: VertexId,
        time: Timestamp,
        take: impl FnOnce(&mut Cell) -> CellChange,
    ) -> Result<bool, Error> {
        let index = self.fact(id)?;
        let cell = &mut self.table.cells[index];
        let resets = cell.resets();
        let change = take(cell);
        self.resets += cell.resets() - resets;
        self.table.note(index, change, time);
        if self.table.vertices[index].dependents.is_empty() {
            // A vertex without dependents has nothing to propagate.
            self.table.vertices[index].matters = false;
        } else {
            self.wait_for_run(index as u32);
        }
        Ok(change.matters())
    }

    /// Returns the index of a fact.
    #[inline]
    fn fact(&self, id: VertexId) -> Result<usize, Error> {
        let index = self.table.index(id)?;
        if self.table.vertices[index].is_insight {
            return Err(Error::Computed(self.table.cells[index].topic().clone()));
        }
        Ok(index)
    }

    #[inline]
    fn wait_for_run(&mut self, index: u32) {
        let vertex = &mut self.table.vertices[index as usize];
        if !vertex.pending {
            vertex.pending = true;
            self.pending.push(index);
        }
    }

    fn update_missing(&mut self) {
        let mut changed = Vec::new();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let Some(node) = node else { continue };
            for matched in &mut node.matched {
                let reason = self.missing.reason(&matched.input().pattern);
                if matched.set_missing(reason) && matched.indexes().is_empty() {
                    node.dirty = true;
                    changed.push(index as u32);
                }
            }
        }
        for index in changed {
            self.wait_for_run(index);
        }
    }
}
