//! The reading side of one segment.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use skopos_model::{Kind, Timestamp, Topic, Unit, ValueType};

use crate::error::Error;
use crate::flags::Flags;
use crate::header::{Header, Refusal};
use crate::layout::{HEADER_BYTES, Live, MAX_FILE_BYTES, STATE_CLOSED, STATE_NEW};
use crate::map::Mapping;
use crate::ring::{Place, RawVertex};
use crate::sync::{AtomicU32, Ordering};
use crate::sys;

/// A segment, mapped for reading. Cheap to clone.
#[derive(Clone)]
pub struct Segment {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) map: Mapping,
    flags: Option<Flags>,
    file: File,
    path: PathBuf,
    pub(crate) header: Header,
}

/// What the directory says about a vertex.
#[derive(Clone, Debug, PartialEq)]
pub struct VertexInfo {
    /// Its topic.
    pub topic: Topic,
    /// The type of its values.
    pub value_type: ValueType,
    /// How its values move.
    pub kind: Kind,
    /// The unit of its values.
    pub unit: Unit,
    /// The group that it is measured with; empty if alone.
    pub group: String,
    /// How many samples stay in memory.
    pub slots: u32,
    /// When it was registered.
    pub registered_at: Timestamp,
}

impl Segment {
    /// Maps the segment file at `path` and checks it.
    ///
    /// # Errors
    /// [`Error::Owner`] unless the file belongs to this user or root; [`Error::NotASegment`] and
    /// [`Error::LayoutVersion`] for what this program cannot read; [`Error::Io`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(Error::io(path, "cannot open"))?;
        let meta = file.metadata().map_err(Error::io(path, "cannot look at it"))?;
        let not_a_segment =
            |why: &str| Error::NotASegment { path: path.into(), why: why.to_owned() };
        if !meta.is_file() {
            return Err(not_a_segment("not a plain file"));
        }
        // Whoever owns the file can cut it short under a reader's feet, and the reader dies of
        // SIGBUS. Only the user's own programs and root's are trusted not to.
        let wanted = sys::effective_uid();
        if meta.uid() != wanted && meta.uid() != 0 {
            return Err(Error::Owner { path: path.into(), found: meta.uid(), wanted });
        }
        if meta.len() < HEADER_BYTES as u64 {
            return Err(not_a_segment("shorter than a header"));
        }
        if meta.len() > MAX_FILE_BYTES {
            return Err(not_a_segment("longer than any segment"));
        }
        let map = Mapping::map(&file, meta.len() as usize, false)
            .map_err(Error::io(path, "cannot map"))?;
        let fixed = map.fixed_header().ok_or_else(|| not_a_segment("shorter than a header"))?;
        let header = Header::decode(&fixed, meta.len()).map_err(|refusal| match refusal {
            Refusal::Version(found) => Error::LayoutVersion { path: path.into(), found },
            Refusal::Damaged(why) => not_a_segment(&why),
        })?;
        let Header { flags_id, directory_capacity, created_at, .. } = header;
        let flags = Flags::find(flags_id, directory_capacity, created_at, meta.uid());
        let shared = Shared { map, flags, file, path: path.into(), header };
        let segment = Self { shared: Arc::new(shared) };
        // SYNC: pairs with the Release store in `Builder::make_files`.
        if segment.live().state.load(Ordering::Acquire) == STATE_NEW {
            return Err(not_a_segment("its publisher has not finished making it"));
        }
        Ok(segment)
    }

    #[inline]
    pub(crate) fn live(&self) -> &Live {
        self.shared.map.live().unwrap_or_else(|| unreachable!("`open` saw a whole header"))
    }

    /// The segment's file.
    #[inline]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The segment's name.
    #[inline]
    pub fn name(&self) -> &str {
        &self.shared.header.name
    }

    /// The node that its publisher says it runs on.
    pub fn node(&self) -> &str {
        &self.shared.header.node
    }

    /// The publisher's process id, in its own namespace.
    pub fn pid(&self) -> u32 {
        self.shared.header.pid
    }

    /// When the segment was made.
    pub fn created_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.shared.header.created_at)
    }

    /// True if both are mappings of one segment, and not of two that had one path in turn.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
            || self.path() == other.path() && self.shared.header == other.shared.header
    }

    /// True while the publisher lives and has not closed the segment. One system call.
    pub fn is_alive(&self) -> bool {
        // SYNC: pairs with the Release store in `OwnSegment::close`.
        self.live().state.load(Ordering::Acquire) != STATE_CLOSED
            // A lock that cannot be asked for is a kernel without such locks: believe the state.
            && sys::is_locked(&self.shared.file).unwrap_or(true)
    }

    /// How long the publisher has given no sign of life. A living publisher that is stuck shows.
    pub fn silent_for(&self) -> Duration {
        let beat = self.live().heartbeat_boottime.load(Ordering::Relaxed);
        Duration::from_nanos(sys::boottime().saturating_sub(beat))
    }

    /// How often the publisher saw its clock step back.
    pub fn clock_steps(&self) -> u64 {
        self.live().clock_steps.load(Ordering::Relaxed)
    }

    /// Changes whenever a vertex is registered or unregistered.
    #[inline]
    pub fn directory_version(&self) -> u64 {
        // SYNC: pairs with the Release in `OwnSegment::directory_changed`.
        self.live().directory_version.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn raw(&self, place: &Place) -> RawVertex<'_> {
        self.shared.map.vertex(place).unwrap_or_else(|| unreachable!("checked by `vertex_at`"))
    }

    /// The flag of those who wait for entry `index`, or for any vertex if `None`. There is none if
    /// the publisher has no page of flags, or lives in another IPC namespace, or is dead.
    #[inline]
    pub(crate) fn flag(&self, index: Option<u32>) -> Option<&AtomicU32> {
        self.shared.flags.as_ref()?.flag(index)
    }

    /// Says that entry `index` is read.
    #[inline]
    pub(crate) fn mark(&self, index: u32, mark: u32) {
        if let Some(flags) = &self.shared.flags {
            flags.mark(index, mark);
        }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({})", self.shared.path.display())
    }
}
