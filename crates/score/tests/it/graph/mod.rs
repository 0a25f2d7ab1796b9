//! The graph, from outside.

mod support;
mod joining;
mod freshness;
mod units;
mod cycles;
mod running;
pub(crate) mod no_allocation;
mod model;
mod simulation;
