use std::io;
use std::path::PathBuf;

use skopos_model::{Timestamp, Topic, ValueType};
use thiserror::Error;

use crate::layout::{LAYOUT_VERSION, MAX_NAME_BYTES, MAX_SLOTS};

/// The errors of segments, their publishers and their readers.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call on a file or directory failed.
    #[error("{path}: {doing}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The failed action, such as `cannot open`.
        doing: &'static str,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The file system of the runtime directory has no room.
    #[error("{path}: no room for {needed} more bytes")]
    Full {
        /// The segment's file.
        path: PathBuf,
        /// The number of bytes that were needed.
        needed: u64,
    },
    /// The segment has no room for another vertex.
    #[error("the segment `{segment}` is full: it was made for {capacity} {what}")]
    SegmentFull {
        /// The segment's name.
        segment: String,
        /// The exhausted resource: `vertices`, `groups` or `bytes`.
        what: &'static str,
        /// The capacity of the segment.
        capacity: u64,
    },
    /// Another process publishes under this name.
    #[error("the segment `{name}` is held by process {pid}, which has published since {since}")]
    Held {
        /// The segment's name.
        name: String,
        /// The process id of the holder, in its own namespace.
        pid: u32,
        /// The time at which it created the segment.
        since: Timestamp,
    },
    /// This process is a child of the one that made the segment.
    #[error(
        "the segment `{segment}` is of process {pid}, which forked this one: \
         make a publisher after the fork, under a name of its own"
    )]
    Forked {
        /// The segment's name.
        segment: String,
        /// The process id of its publisher.
        pid: u32,
    },
    /// The directory or file belongs to another user.
    #[error("{path}: belongs to user {found}, not to {wanted}")]
    Owner {
        /// The directory or file.
        path: PathBuf,
        /// The user id of its owner.
        found: u32,
        /// The user id that the owner must have.
        wanted: u32,
    },
    /// Other users may write to the runtime directory.
    #[error(
        "{path}: other users may write here (mode {mode:o}); only the owner may have write permission"
    )]
    Permissions {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is not a segment, or it is damaged.
    #[error("{path}: not a segment: {why}")]
    NotASegment {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The file has a layout that this program does not know.
    #[error("{path}: layout version {found}; this program reads version {LAYOUT_VERSION}")]
    LayoutVersion {
        /// The file.
        path: PathBuf,
        /// The version in it.
        found: u32,
    },
    /// A segment of a recorder cannot have these lengths.
    #[error(
        "{0} rings of {1} records: at most 1024 rings of 64 to 65536 records, a power of two, and 4 GiB"
    )]
    Rings(u32, u32),
    /// A definition is too long, or the region of definitions is full.
    #[error("the segment `{segment}` has no room for a definition of {bytes} bytes")]
    DefinitionsFull {
        /// The segment's name.
        segment: String,
        /// Length of the definition.
        bytes: usize,
    },
    /// The name cannot be the file name of a segment.
    #[error("`{0}` is not a name: 1 to {MAX_NAME_BYTES} of the characters a-z 0-9 _ - .")]
    Name(String),
    /// The topic is already registered in the segment.
    #[error("the topic `{0}` is already registered")]
    Duplicate(Topic),
    /// No live segment has this topic.
    #[error("no vertex `{0}`")]
    NoVertex(Topic),
    /// The vertex was unregistered, or its publisher closed the segment.
    #[error("the vertex `{0}` is gone: its publisher removed it")]
    Gone(Topic),
    /// The vertex has no sample yet.
    #[error("the vertex `{0}` has no sample yet")]
    Empty(Topic),
    /// The ring of the vertex no longer reaches back to this time.
    #[error("the memory of the vertex `{topic}` no longer reaches back to {time}")]
    TooOld {
        /// The vertex.
        topic: Topic,
        /// The time that was asked for.
        time: Timestamp,
    },
    /// The memory of the vertex is not what a publisher writes.
    #[error("the vertex `{0}` is damaged: it counts samples that are not there")]
    Damaged(Topic),
    /// Writers overwrote the vertex faster than this reader could read it.
    #[error("the vertex `{0}` is written faster than it can be read")]
    Busy(Topic),
    /// The source of the vertex was polled too long ago.
    #[error("the vertex `{topic}` is {age:?} old, and at most {max_age:?} was asked for")]
    Stale {
        /// The vertex.
        topic: Topic,
        /// The time since the last poll.
        age: std::time::Duration,
        /// The greatest age that was asked for.
        max_age: std::time::Duration,
    },
    /// The publisher says that the value is unknown.
    #[error("the value of `{0}` is unknown: its publisher could not measure it")]
    Unknown(Topic),
    /// The value has another type than the vertex.
    #[error("the vertex `{topic}` holds {wanted}, not {found}")]
    WrongType {
        /// The vertex.
        topic: Topic,
        /// The type of the vertex.
        wanted: ValueType,
        /// The type of the value.
        found: ValueType,
    },
    /// The number of slots is not possible for a ring.
    #[error("a ring of {0} slots: the number must be a power of two, at most {MAX_SLOTS}")]
    Slots(u32),
    /// The vertices of a snapshot or tick are not all of one group.
    #[error("all vertices must be of one group; `{0}` is not in it")]
    SnapshotGroup(Topic),
    /// A vertex of a group was published outside of a tick.
    #[error("the vertex `{0}` belongs to a group: publish it in a tick")]
    NeedsTick(Topic),
    /// A topic, unit or value is invalid.
    #[error(transparent)]
    Model(#[from] skopos_model::Error),
}

impl Error {
    pub(crate) fn io(
        path: &std::path::Path,
        doing: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, doing, source }
    }
}
