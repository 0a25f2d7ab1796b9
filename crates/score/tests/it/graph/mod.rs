//! The graph, from outside.

mod support;
mod joining;
mod freshness;
mod units;
mod cycles;
mod running;
mod no_allocation;
mod model;
mod simulation;
