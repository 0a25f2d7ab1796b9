//! The long-time storage: a folder of segments on a local disk.
//!
//! # Layout
//! `segment-*.parquet`, unfinished `segment-*.tmp`, `lock`, and the folder `quarantine` of damaged files.
//!
//! # Invariants
//! - A part that [`Lts::seal`] returned is durable, and is found exactly once until retention removes it. Sealing it again
//!   changes nothing.
//! - Segments do not change. Compaction writes a new segment, and removes the old ones once that is durable. If a part is
//!   in two segments, the later one counts.
//! - An operation that failed half-way leaves a folder that the next operation reads again before it writes.
//! - A damaged segment is named and moved aside, never removed before its time.
//!
//! Read in this order: `index`, `state`, `folder`, `sealing`, `chores`, `entries`, `copies`, `files`.

mod index;
mod state;
mod folder;
mod sealing;
mod chores;
mod entries;
mod copies;
mod files;
#[cfg(test)]
mod tests;

pub use chores::{Changes, Retention, SegmentDamage};
pub(in crate::jobs) use copies::whole;
pub use copies::{SegmentFile, Version, WholeSegment};
pub use entries::PartsOfJobs;
pub use files::SegmentFiles;
pub use folder::{Lts, Placed};
