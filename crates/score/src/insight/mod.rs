//! Insights: what is computed from facts. The fifteen of Apollo's Table 1 are a file each.
//!
//! An [`Insight`] is the computation of one vertex. A [`Definition`] says for which instances (a
//! device, a mount, a tier, the node) there is such a vertex, and what its inputs are.

use skopos_model::schema::Metric;

use crate::{Cell, Input, Inputs, Outcome};

/// The computation of one insight vertex. The graph calls it when an input changed.
pub trait Insight: Send {
    /// A vertex now matches the input at `slot`. `vertex` names it in the calls that follow.
    /// What is known of it so far, its value as a rule not yet, is in `cell`.
    fn joined(&mut self, slot: usize, vertex: u32, cell: &Cell) {
        let _ = (slot, vertex, cell);
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

    /// True if the value moves with time alone (a window, an age), so that the graph has to evaluate
    /// it now and then though no input changed.
    fn is_timed(&self) -> bool {
        false
    }

    /// The value now.
    fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome;
}

/// One of the built-in insights: a row of the paper's Table 1.
pub struct Definition {
    /// Name, help, unit and type: a metric of `schema/insight.toml`.
    pub metric: &'static Metric,
    /// Its row in Table 1.
    pub row: u8,
    /// The formula, in the names of the inputs.
    pub formula: &'static str,
    /// Where the formula comes from.
    pub source: &'static str,
    /// For what there is such a vertex.
    pub instances: Instances,
    /// Makes the vertex of one instance: its inputs, and what computes it.
    pub make: fn(&Instance<'_>) -> (Vec<Input>, Box<dyn Insight>),
}

/// For what there is a vertex of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instances {
    /// One for the node.
    Node,
    /// One for each fact of this pattern, in which `{}` stands for the instance:
    /// `*/device/{}/concurrency`.
    Each(&'static str),
    /// One for each configured tier.
    Tiers,
}

/// What a vertex is made for.
#[derive(Clone, Copy, Debug)]
pub struct Instance<'a> {
    /// The node whose facts it takes.
    pub node: &'a str,
    /// The device, mount, tier or job; `node` for an insight of the whole node.
    pub name: &'a str,
}
