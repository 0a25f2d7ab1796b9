//! Decisions: the ranking of nodes for programs that choose among them, rules that call for actions, and the placement of
//! files on storage tiers.
//!
//! # Invariants
//! - `rank`, `simulate`, `rule` and `place` are pure: they have no clock, no files and no threads. `tiers` has all three.
//! - Everything is bounded by the constants that the modules export.
//!
//! Read in this order: [`rank`], then [`simulate`], which compares ways to choose among replicas; [`place`], then
//! [`tiers`], which moves files as `place` decides. [`rule`] stands alone.

#![forbid(unsafe_code)]

mod error;
pub mod rank;
pub mod rule;
pub mod simulate;
pub mod place;
pub mod tiers;

pub use error::Error;
