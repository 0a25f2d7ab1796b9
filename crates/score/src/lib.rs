//! SCoRe: the computations on facts. It holds the graph of facts and insights, the policies that
//! decide how often a sensor is polled, the prediction of a value between two polls, the
//! detectors of unusual values, and the rules that find faults of jobs.
//!
//! # Invariants
//! - The crate is pure: it has no clock, no randomness and no files. Every call carries the time,
//!   so a test simulates a day of a thousand vertices in a second from one seed.
//! - An unknown value is an [`Unknown`] with its reason, never a made-up number.
//! - Everything is bounded: windows, stored samples, vertices, names.
//! - Release builds optimise each crate alone, so small functions that run for each fact, sample or
//!   read are `#[inline]`, and rare error paths beside them are functions of their own.
//!
//! Read in this order: [`Insight`] and [`Inputs`], then `insight` for the fifteen built-in insights
//! and `graph` for the engine that runs them. `interval`, `delphi`, `anomaly`, `finding` and
//! `budget` are independent of each other; a [`trace`] replays recorded values through them.

#![forbid(unsafe_code)]

mod unknown;
mod cell;
mod input;
mod matched;
mod inputs;
pub mod insight;
pub mod graph;
pub mod interval;
pub mod trace;
pub mod delphi;
pub mod anomaly;
pub mod finding;
pub mod budget;
mod error;
pub mod duration;

pub use cell::Cell;
pub use error::Error;
pub use graph::{Graph, InsightSpec, VertexId};
pub use input::Input;
pub use inputs::{Cells, CellsIter, Inputs, Slot};
pub use insight::Insight;
pub use unknown::{Outcome, Unknown};
