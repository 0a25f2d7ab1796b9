//! Decisions: the ranking of nodes for programs that choose among them.
//!
//! # Invariants
//! - `rank` is pure: it has no clock, no files and no threads.
//! - Everything is bounded by the constants that the modules export.
//!
//! Read in this order: [`rank`], then [`simulate`], which compares ways to choose among replicas.

#![forbid(unsafe_code)]

mod error;
pub mod rank;
pub mod simulate;

pub use error::Error;
