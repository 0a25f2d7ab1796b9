//! Segments: sealed Parquet files with parts of many jobs.
//!
//! # Layout
//! The name is `segment-NUMBER-FROM-TO-TAIL-SUM.parquet`: times in nanoseconds of UNIX time, then the length of the
//! tail and its checksum (see `sealed`) in hexadecimal. Rows are records, sorted by job, generation and part, then by
//! kind, schema, node and time. `docs/reference/job-segment.md` has the columns and the metadata of the file. The list of
//! parts in the metadata has the rows of each part, so that a reader finds a job without reading a column.
//!
//! # Invariants
//! - A segment with its final name is complete and durable, and never changes.
//! - Every byte that is read is checked. A part is read back as it was pushed, byte for byte and in the order of
//!   arrival, or not at all.
//!
//! Read in this order: `name`, `columns`, `info`, `rows`, `writer`, `group`, `reader`, `arriving`.

mod name;
mod columns;
mod info;
mod rows;
mod writer;
mod group;
mod reader;
mod arriving;
#[cfg(test)]
mod tests;

pub use arriving::ArrivingSegment;
pub use info::PartInfo;
pub(super) use info::sum_of;
pub(super) use name::SegmentName;
pub use reader::{PartReader, Segment};
pub use writer::{SegmentInfo, SegmentWriter};
