//! Stored measurements: the archive of task reports with its statistics and estimates, and the history
//! of samples.
//!
//! Read in this order: [`stats`] has mergeable statistics of many values; [`estimate`] chooses an
//! allocation from the usage of earlier tasks, and [`replay`] tries it on a published workload;
//! [`archive`] is the file that keeps the reports of tasks; [`history`] keeps samples and [`jobs`] the records of jobs,
//! on the log core in `log`, which reaches files through a [`Disk`]; `sealed` has the checksums of their sealed files;
//! [`journal`] keeps entries of any kind.
//!
//! # Invariants
//! - A report in the archive is complete and exists once, even after `kill -9` at any instruction, with
//!   two importers at a time, and if the same folder is imported twice.
//! - A file that cannot be read is refused by name and counted; the import goes on.
//! - `stats` and `estimate` are pure: no clock, no files, no randomness.

#![forbid(unsafe_code)]

pub mod stats;
pub mod estimate;
pub mod replay;
mod sqlite;
pub mod archive;
mod log;
mod sealed;
pub mod journal;
pub mod history;
pub mod jobs;
#[cfg(test)]
mod rounds;

pub use log::{Disk, DiskFile, Listed, Lock, OsDisk};
