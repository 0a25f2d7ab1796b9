//! Tests of the graph's public interface.

mod support;
mod joining;
mod freshness;
mod units;
mod cycles;
mod running;
pub(crate) mod no_allocation;
mod model;
mod simulation;
