//! The log core: records of many producers, appended to one file at a time, and read back exactly once and in order.
//!
//! A **producer** has an **epoch**, in which its **sequences** ascend: a repeated or older entry is a duplicate. A log
//! belongs to a **generation**; its client seals it into a file of its own format with the same generation. History is
//! a client: a series is a producer, its registration the epoch, the time of a sample the sequence.
//!
//! Records wait in memory for a **commit**, which writes them as one frame (a group) and acknowledges them at a
//! [`Level`].
//!
//! # Invariants
//! - What a commit acknowledged is read back exactly once, in the order of its producer: after the end of the process
//!   if the level is [`Level::Memory`], after a loss of power if it is [`Level::Disk`].
//! - A sync that failed is never simply repeated: the log is written to another file first, because the kernel may have
//!   dropped what it could not write. So is a log that another process began: its syncs may have failed.
//! - A record is read back as it was written or not at all, and what cannot be read is counted. A damaged file is
//!   never removed, but moved to the folder `quarantine`.
//!
//! Read in this order: `disk`, `frame`, `record`, `writer`, `tail`, `quarantine`.

pub(crate) mod disk;
mod error;
mod frame;
mod quarantine;
mod record;
#[cfg(test)]
pub(crate) mod simulated;
mod tail;
mod writer;

pub use disk::{Disk, DiskFile, Listed, Lock, OsDisk};
pub use error::Error;
pub(crate) use error::io_at;
pub use quarantine::Damage;
pub(crate) use quarantine::{FOLDER, quarantine};
pub(crate) use record::{Losses, NotALog, Record, Scanned, scan};
pub(crate) use tail::Tail;
pub(crate) use writer::LogWriter;

/// The longest frame that a reader accepts: the records of the most generous client.
const MAX_FRAME_BYTES: usize = 32 << 20;

/// The most bytes of the fields around the content of a record.
const MAX_FIELD_BYTES: usize = 512;

/// The room of a log between two commits. Further records are refused, and the caller counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// Bytes of records that wait for a commit. One more record may exceed it.
    pending: usize,
    /// The longest content of a record.
    content: usize,
}

impl Capacity {
    /// Returns a capacity, which must fit into a frame.
    pub(crate) const fn new(pending: usize, content: usize) -> Self {
        assert!(pending + content + MAX_FIELD_BYTES <= MAX_FRAME_BYTES, "it exceeds a frame");
        Self { pending, content }
    }
}

/// The level at which records are acknowledged: what they survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The end of the process: the kernel has them.
    Memory,
    /// A loss of power: the disk has them.
    Disk,
}
