//! The graph of facts and insights: what runs when an input changes.
//!
//! A vertex is a fact, whose value is set from outside, or an insight, which is computed from other
//! vertices. What those are is said by patterns: a vertex that appears later joins by itself, and
//! one that goes leaves.
//!
//! # Invariants
//! - An insight is evaluated at most once a run, after all that it is computed from, and only if
//!   one of those matters to it: has another value, or another rate.
//! - An insight is as old as its oldest needed input, through all layers, and says which that is.
//!   Without a needed input it is unknown.
//! - No cycle, at any time: what would close one is refused, and the error names the path.
//! - An id never comes to mean another vertex.
//! - A run allocates nothing of its own once all have run.
//!
//! Read in this order: `spec` is what is added, `table` and `node` what is kept of it, `join` how
//! vertices find each other, `order` why that has no cycles, `run` what happens on a change, `view`
//! what can be seen from outside.
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
//! let mut told = Vec::new();
//! graph.run(now, &mut |computed| told.push(computed.outcome.clone()));
//! assert_eq!(told, [Ok(Value::F64(7.0))]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod id;
mod spec;
mod table;
mod changes;
mod node;
mod missing;
mod wanted;
mod order;
mod join;
mod run;
mod view;

use std::time::Duration;

use skopos_model::{Kind, Scalar, Timestamp, Topic, Unit, Value};

use crate::cell::Taken;
use crate::{Cell, Error, Insight, Unknown};

pub use id::{MAX_VERTICES, VertexId};
pub use node::Cost;
pub(crate) use node::Matched;
pub use run::{Computed, Ran, TIMED_EVERY};
pub use spec::{InsightSpec, MAX_HEIGHT, MAX_INPUTS, MAX_MATCHED};
pub use view::{InputView, VertexView};

use missing::Missing;
use node::Node;
use table::Table;
use wanted::Wanted;

/// Facts, and the insights that are computed from them.
#[derive(Default)]
pub struct Graph {
    table: Table,
    /// Beside the table: `None` where there is no insight.
    nodes: Vec<Option<Box<Node>>>,
    wanted: Wanted,
    missing: Missing,
    /// What the next run begins with.
    pending: Vec<u32>,
    /// Insights to run, by rank; empty between runs, and kept for their room.
    queue: Vec<Vec<u32>>,
    /// Insights that may come to something else by time alone.
    on_time: Vec<u32>,
    resets: u64,
}

impl Graph {
    /// Adds the vertex of a fact. Insights that wait for it get it.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::Full`].
    pub fn add_fact(&mut self, topic: Topic, unit: Unit, kind: Kind) -> Result<VertexId, Error> {
        let index = self.table.add(Cell::new(topic, unit, kind), false)?;
        self.make_room(index);
        self.offer(index);
        Ok(self.table.id(index))
    }

    /// Adds the vertex of an insight, with all that is there and matches its inputs. It is computed
    /// by the next run.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Full`], and what can be wrong with its inputs; the graph is then
    /// as it was. An insight that is in the graph, and of which it would become an input of another
    /// unit, is no error: that one becomes unknown.
    pub fn add_insight(
        &mut self,
        spec: InsightSpec,
        insight: Box<dyn Insight>,
    ) -> Result<VertexId, Error> {
        let index = self.admit(spec, insight)?;
        Ok(self.table.id(index))
    }

    /// Removes a vertex. What was computed from it is computed again, without it.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn remove(&mut self, id: VertexId) -> Result<(), Error> {
        let index = self.table.index(id)?;
        self.dismiss(index as u32);
        Ok(())
    }

    /// Takes a number that was found at `time`. True if it matters to whoever computes with it.
    /// Costs a few nanoseconds, and allocates nothing.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::Computed`] for an insight.
    #[inline]
    pub fn set(&mut self, id: VertexId, time: Timestamp, value: Scalar) -> Result<bool, Error> {
        let index = self.fact(id)?;
        let cell = &mut self.table.cells[index];
        let resets = cell.resets();
        let taken = cell.take_scalar(time, value);
        self.resets += cell.resets() - resets;
        Ok(self.found(index, time, taken))
    }

    /// As [`set`](Self::set), for any value.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_value(
        &mut self,
        id: VertexId,
        time: Timestamp,
        value: Value,
    ) -> Result<bool, Error> {
        let index = self.fact(id)?;
        let cell = &mut self.table.cells[index];
        let resets = cell.resets();
        let taken = cell.take_outcome(time, None, Ok(value));
        self.resets += cell.resets() - resets;
        Ok(self.found(index, time, taken))
    }

    /// As [`set`](Self::set), for a fact that could not be measured.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_unknown(
        &mut self,
        id: VertexId,
        time: Timestamp,
        why: Unknown,
    ) -> Result<bool, Error> {
        let index = self.fact(id)?;
        let taken = self.table.cells[index].take_outcome(time, None, Err(why));
        Ok(self.found(index, time, taken))
    }

    /// Says why topics are not there: `what` is the family of a sensor that was skipped, or a
    /// pattern. Insights that lack them give it as their reason.
    pub fn set_missing(&mut self, what: &str, reason: &str) {
        self.missing.set(what, reason);
        self.tell_missing();
    }

    /// Takes back what [`set_missing`](Self::set_missing) said of `what`.
    pub fn clear_missing(&mut self, what: &str) {
        self.missing.clear(what);
        self.tell_missing();
    }

    /// Makes an insight unknown while its oldest needed input was looked at longer than `max_age`
    /// ago; never, without one.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::NotComputed`] for a fact.
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

    /// The vertex of a topic.
    pub fn find(&self, topic: &str) -> Option<VertexId> {
        self.table.find(topic).map(|index| self.table.id(index))
    }

    /// How many vertices there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often a counter stepped back, over all that were ever here.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// The place of a fact.
    #[inline]
    fn fact(&self, id: VertexId) -> Result<usize, Error> {
        let index = self.table.index(id)?;
        if self.table.vertices[index].is_insight {
            return Err(Error::Computed(self.table.cells[index].topic().clone()));
        }
        Ok(index)
    }

    /// Keeps what a look at a fact came to for the next run.
    #[inline]
    fn found(&mut self, index: usize, time: Timestamp, taken: Taken) -> bool {
        self.table.note(index, taken, time);
        // Nobody to tell, nothing to do.
        if !self.table.vertices[index].dependents.is_empty() {
            self.wait_for_run(index as u32);
        } else {
            self.table.vertices[index].matters = false;
        }
        taken.matters()
    }

    #[inline]
    fn wait_for_run(&mut self, index: u32) {
        let vertex = &mut self.table.vertices[index as usize];
        if !vertex.pending {
            vertex.pending = true;
            self.pending.push(index);
        }
    }

    fn tell_missing(&mut self) {
        let mut other = Vec::new();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let Some(node) = node else { continue };
            for matched in &mut node.matched {
                let reason = self.missing.reason(&matched.input().pattern);
                if matched.set_missing(reason) && matched.indexes().is_empty() {
                    node.dirty = true;
                    other.push(index as u32);
                }
            }
        }
        for index in other {
            self.wait_for_run(index);
        }
    }
}
