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
//! Read in this order: `disk`, `frame`, `record`, `writer`, `quarantine`.

pub(crate) mod disk;
mod error;
mod frame;
mod quarantine;
mod record;
#[cfg(test)]
pub(crate) mod simulated;
mod writer;

pub(crate) use disk::{Disk, DiskFile, Listed, Lock, OsDisk};
pub use error::Error;
pub(crate) use error::io_at;
pub use quarantine::Damage;
pub(crate) use quarantine::{FOLDER, quarantine};
pub(crate) use record::{Losses, NotALog, Record, Scanned, scan};
pub(crate) use writer::LogWriter;

use skopos_model::MAX_STRUCTURED_BYTES;

/// The most bytes that wait for a commit. Further records are refused, and the caller counts them. This is some
/// seconds of all that a node can publish; it bounds the memory that a full disk can cost.
pub(crate) const MAX_PENDING_BYTES: usize = 1 << 20;

/// The longest content of a record: a structured value, and the fields before it.
const MAX_CONTENT_BYTES: usize = MAX_STRUCTURED_BYTES + 512;

/// The longest record: its content, and the fields around it.
const MAX_RECORD_BYTES: usize = MAX_CONTENT_BYTES + 512;

/// The level at which records are acknowledged: what they survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The end of the process: the kernel has them.
    Memory,
    /// A loss of power: the disk has them.
    Disk,
}
