//! Insights: what is computed from facts. The fifteen of Apollo's Table 1 are a file each.
//!
//! An [`Insight`] is the computation of one vertex. A [`Definition`] says for which instances (a
//! device, a mount, a tier, the node) there is such a vertex, and what its inputs are.

use skopos_model::Topic;
use skopos_model::schema::Metric;

use crate::{Cell, Inputs, Outcome};

/// The computation of one insight vertex. The graph calls it when an input changed.
pub trait Insight: Send {
    /// A vertex now matches the input at `slot`. `vertex` names it in the calls that follow.
    fn joined(&mut self, slot: usize, vertex: u32, topic: &Topic) {
        let _ = (slot, vertex, topic);
    }

    /// It is gone.
    fn left(&mut self, slot: usize, vertex: u32) {
        let _ = (slot, vertex);
    }

    /// Its value changed. Called before [`evaluate`](Self::evaluate), once for each changed input,
    /// so that what can be kept up to date step by step need not look at all of them again.
    fn changed(&mut self, slot: usize, vertex: u32, cell: &Cell) {
        let _ = (slot, vertex, cell);
    }

    /// The value now.
    fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome;
}

/// One of the built-in insights: a row of the paper's Table 1.
#[derive(Debug)]
pub struct Definition {
    /// Name, help, unit and type: a metric of `schema/insight.toml`.
    pub metric: &'static Metric,
    /// Its row in Table 1.
    pub row: u8,
    /// The formula, in the names of the inputs.
    pub formula: &'static str,
    /// Where the formula comes from.
    pub source: &'static str,
}
