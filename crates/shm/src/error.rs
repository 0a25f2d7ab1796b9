use std::io;
use std::path::PathBuf;

use skopos_model::{Topic, ValueType};
use thiserror::Error;

use crate::layout::{LAYOUT_VERSION, MAX_NAME_BYTES, MAX_SLOTS};

/// What can go wrong with a segment.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something on a file of ours.
    #[error("{path}: {doing}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was being done, such as `cannot open`.
        doing: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The file system of the runtime directory has no room.
    #[error("{path}: no room for {needed} more bytes")]
    Full {
        /// The segment's file.
        path: PathBuf,
        /// How many bytes were asked for.
        needed: u64,
    },
    /// The segment has no room for another vertex.
    #[error("the segment `{segment}` is full: it was made for {capacity} {what}")]
    SegmentFull {
        /// The segment's name.
        segment: String,
        /// What there is no more of: `vertices`, `groups` or `bytes`.
        what: &'static str,
        /// How many there can be.
        capacity: u64,
    },
    /// Another process publishes under this name.
    #[error("the segment `{name}` is held by process {pid}, which has published since {since}")]
    Held {
        /// The segment's name.
        name: String,
        /// The holder, in its own process-id namespace.
        pid: u32,
        /// When it created the segment.
        since: skopos_model::Timestamp,
    },
    /// A directory or file that belongs to somebody else.
    #[error("{path}: belongs to user {found}, not to {wanted}")]
    Owner {
        /// The directory or file.
        path: PathBuf,
        /// Its owner's user id.
        found: u32,
        /// The user id that it must have.
        wanted: u32,
    },
    /// A runtime directory that others may write to.
    #[error(
        "{path}: others may write here (mode {mode:o}); the directory must be the owner's alone"
    )]
    Permissions {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is no segment, or a damaged one.
    #[error("{path}: not a segment: {why}")]
    NotASegment {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
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
    /// A name that cannot be a file name of ours.
    #[error("`{0}` is not a name: 1 to {MAX_NAME_BYTES} of the characters a-z 0-9 _ - .")]
    Name(String),
    /// The segment has this topic already.
    #[error("the topic `{0}` is registered already")]
    Duplicate(Topic),
    /// No live segment has this topic.
    #[error("no vertex `{0}`")]
    NoVertex(Topic),
    /// The vertex was unregistered, or its publisher closed it.
    #[error("the vertex `{0}` is gone: its publisher took it away")]
    Gone(Topic),
    /// The vertex has no sample yet.
    #[error("the vertex `{0}` has no sample yet")]
    Empty(Topic),
    /// Writers overwrote the vertex faster than this reader could read it.
    #[error("the vertex `{0}` is written faster than it can be read")]
    Busy(Topic),
    /// A value of another type than the vertex holds.
    #[error("the vertex `{topic}` holds {wanted}, not {found}")]
    WrongType {
        /// The vertex.
        topic: Topic,
        /// Its type.
        wanted: ValueType,
        /// The value's type.
        found: ValueType,
    },
    /// A number of slots that no ring can have.
    #[error("a ring of {0} slots: it must be a power of two, at most {MAX_SLOTS}")]
    Slots(u32),
    /// Vertices of several groups, or of none, in one snapshot.
    #[error("a snapshot needs vertices of one group; `{0}` is not of the same one")]
    SnapshotGroup(Topic),
    /// Publishing outside a tick into a vertex that is measured with others.
    #[error("the vertex `{0}` belongs to a group: publish it in a tick")]
    NeedsTick(Topic),
    /// Something that model refuses.
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
