//! Decisions: the ranking of nodes for programs that choose among them, and rules that call for actions.
//!
//! # Invariants
//! - `rank` and `rule` are pure: they have no clock, no files and no threads.
//! - Everything is bounded by the constants that the modules export.
//!
//! Read in this order: [`rank`], then [`simulate`], which compares ways to choose among replicas. [`rule`] stands alone.

#![forbid(unsafe_code)]

mod error;
pub mod rank;
pub mod rule;
pub mod simulate;

pub use error::Error;
