//! Decisions.
#![forbid(unsafe_code)]
pub mod rank;
pub mod simulate;
