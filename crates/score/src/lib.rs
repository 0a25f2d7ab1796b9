//! SCoRe: what is made of facts. The graph of facts and insights, how often a sensor is polled,
//! what a value is between two polls, and what is unusual.
//!
//! # Invariants
//! - Pure: no clock, no randomness, no files. Time comes with every call, so a day of a thousand
//!   vertices is simulated in a second from one seed.
//! - What is not known is [`Unknown`] with its reason, never a made-up number.
//! - Everything is bounded: windows, samples kept, vertices, names.
//!
//! Read in this order: [`Insight`] and [`Inputs`], `insight` for the fifteen, `graph` for what runs
//! them; `interval`, `delphi`, `anomaly` and `budget` stand for themselves; a [`trace`] replays them.

#![forbid(unsafe_code)]

mod unknown;
mod cell;
mod inputs;
pub mod insight;
pub mod graph;
pub mod interval;
pub mod trace;
pub mod delphi;
pub mod anomaly;
pub mod budget;
mod error;
pub mod duration;

pub use cell::Cell;
pub use error::Error;
pub use graph::{Graph, InsightSpec, VertexId};
pub use inputs::{Cells, CellsIter, Input, Inputs, Slot};
pub use insight::Insight;
pub use unknown::{Outcome, Unknown};
