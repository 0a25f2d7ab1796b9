//! Segments of recorders: rings of records with one writer each.

pub mod layout;
pub(crate) mod ring;
#[cfg(not(loom))]
mod header;
#[cfg(not(loom))]
mod own;
#[cfg(not(loom))]
mod reader;

#[cfg(not(loom))]
pub use own::{MAX_GROUP, RecordSegment, RecordSegmentBuilder, RecordWriter, Stored};
#[cfg(not(loom))]
pub use reader::{RecordReader, record_segments, remove_record_segment};
pub use ring::Drained;
