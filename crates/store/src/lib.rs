//! Where measurements are kept: the archive of task reports, the statistics of what they used, and
//! the estimates of what the next one needs.
//!
//! Read in this order: [`stats`] sums up many values so that sums of parts make the sum of the
//! whole; [`estimate`] chooses an allocation from what earlier tasks used, and [`replay`] tries it on a published workload; [`archive`] is the file
//! that keeps their reports. `history` keeps samples, if that is built in.
//!
//! # Invariants
//! - A report that is in the archive is whole, and is there once: `kill -9` at any instruction, two
//!   importers at a time and the same folder twice change nothing of that.
//! - What cannot be read is refused by name and counted; the rest goes on.
//! - `stats` and `estimate` are pure: no clock, no files, no randomness.

#![forbid(unsafe_code)]

pub mod stats;
pub mod estimate;
pub mod replay;
pub mod archive;
#[cfg(feature = "history")]
pub mod history;
