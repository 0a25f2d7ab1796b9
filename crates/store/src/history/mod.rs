//! History on disk: published samples, within limits of size and age.
//!
//! ```text
//!                                           ┌─ merged ─┐
//! samples ─▶ Keeper ─▶ log-N ─ sealed ─▶ part-N-FROM-TO.parquet ─ over a limit ─▶ removed
//!                        └───────┬───────────────┘
//!                             Folder ─▶ Parts ─▶ chunks of columns
//! ```
//!
//! `log` has the core: how samples reach the log, and what survives. This module has what is history's own: its
//! records, its parts, and their limits.
//!
//! # Invariants
//! - A committed sample exists exactly once, whenever and however the process ends: a part with its final name has the
//!   whole logs of its generations. Of two parts with the same generation, the one with more generations counts.
//! - A reader needs no lock. If a file disappears after the reader listed the folder, it lists again.
//! - Parts never change. Their names alone give their times.
//! - Every byte of a part is checked when it is read. A damaged file costs at most itself, and is named.
//! - Generations have no gaps, except those of files that were moved aside.

mod column;
mod series;
mod codec;
mod block;
mod series_list;
mod seal;
mod selection;
mod pages;
mod file;
mod chunks;
mod part;
mod listing;
mod folder;
mod limits;
mod due;
mod merge;
mod chores;
mod keeper;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod merge_crash_tests;

pub use block::Stretch;
pub use chores::{Chores, Merges, Report};
pub use chunks::{Chunk, Chunks, Run};
pub use column::Column;
pub use folder::{Folder, Found};
pub use keeper::{Keeper, PushOutcome, SeriesId};
pub use limits::Limits;
pub use part::Part;
pub use seal::Sealer;
pub use selection::Selection;
pub use series::{ORIGINS, Samples, Series};

pub use crate::log::{Damage, Error, Level};
