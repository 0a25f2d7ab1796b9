//! A segment from the side of its readers.

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
use crate::process::Watched;
use crate::sync::{AcquireLoad as _, AtomicU32, Ordering};
use crate::sys::{self, Futex};
use crate::wait::{Sleep as _, settle};

/// A segment, mapped for reading. Cheap to clone.
#[derive(Clone)]
pub struct Segment {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) map: Mapping,
    pub(crate) flags: Option<Flags>,
    /// False if this process cannot make the fence that the publisher leaves out.
    can_wait: bool,
    pub(crate) file: File,
    path: PathBuf,
    pub(crate) header: Header,
    publisher: Watched,
    /// Number of entries for which the file had memory at the last look.
    pub(crate) reserved_entries: AtomicU32,
}

/// The description of a vertex in the directory.
#[derive(Clone, Debug, PartialEq)]
pub struct VertexInfo {
    /// The topic.
    pub topic: Topic,
    /// The type of its values.
    pub value_type: ValueType,
    /// The kind: the way in which values move.
    pub kind: Kind,
    /// The unit of its values.
    pub unit: Unit,
    /// The group that it is measured with; empty without a group.
    pub group: String,
    /// Number of samples that stay in memory.
    pub slots: u32,
    /// Time of its registration.
    pub registered_at: Timestamp,
}

impl Segment {
    /// Maps the segment file at `path` and checks it.
    ///
    /// # Errors
    /// [`Error::Owner`] unless the file belongs to this user or root; [`Error::NotASegment`] and
    /// [`Error::LayoutVersion`] if this program cannot read the file; [`Error::Io`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(Error::io(path, "cannot open"))?;
        let meta = file.metadata().map_err(Error::io(path, "cannot read its metadata"))?;
        let not_a_segment =
            |why: &str| Error::NotASegment { path: path.into(), why: why.to_owned() };
        if !meta.is_file() {
            return Err(not_a_segment("not a plain file"));
        }
        // The owner of the file can truncate it while it is mapped, and the reader then dies of SIGBUS.
        // Only programs of this user and of root are trusted not to do this.
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
        let Header { flags_id, directory_capacity, created_at, is_quick, .. } = header;
        let can_wait = !is_quick || sys::has_barriers();
        let flags = Flags::find(flags_id, directory_capacity, created_at, meta.uid());
        let publisher = Watched::find(&header.publisher);
        let reserved_entries = AtomicU32::new(0);
        let path = path.into();
        let shared =
            Shared { map, flags, can_wait, file, path, header, publisher, reserved_entries };
        let segment = Self { shared: Arc::new(shared) };
        // SYNC: pairs with the Release store in `Builder::make_files`.
        if segment.live().state.load_acquire() == STATE_NEW {
            return Err(not_a_segment("its publisher has not finished it"));
        }
        Ok(segment)
    }

    #[inline]
    pub(crate) fn live(&self) -> &Live {
        self.shared.map.live().unwrap_or_else(|| unreachable!("`open` saw a whole header"))
    }

    /// Returns the path of the segment's file.
    #[inline]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Returns the name of the segment.
    #[inline]
    pub fn name(&self) -> &str {
        &self.shared.header.name
    }

    /// Returns the node name that the publisher set.
    pub fn node(&self) -> &str {
        &self.shared.header.node
    }

    /// Returns the publisher's process id, in its own namespace.
    pub fn pid(&self) -> u32 {
        self.shared.header.publisher.pid
    }

    /// Returns the time at which the segment was made.
    pub fn created_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.shared.header.created_at)
    }

    /// Returns true if both are mappings of one segment, and not of two that had the same path in turn.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
            || self.path() == other.path() && self.shared.header == other.shared.header
    }

    /// Returns true while the publisher lives and has not closed the segment. Two system calls.
    ///
    /// A publisher in another namespace of process ids counts as alive as long as it, or a child that it
    /// forked, has the segment's file open.
    pub fn is_alive(&self) -> bool {
        // SYNC: pairs with the Release store in `OwnSegment::close`.
        self.live().state.load_acquire() != STATE_CLOSED && self.is_held()
    }

    /// Returns true while the publisher lives, also if it is closing the segment and will remove the file.
    pub(crate) fn is_held(&self) -> bool {
        // An error means a kernel without such locks: trust the rest.
        sys::is_locked(&self.shared.file).unwrap_or(true) && !self.shared.publisher.has_ended()
    }

    /// Returns the time since the publisher's last heartbeat. It grows if a living publisher is stuck.
    pub fn silent_for(&self) -> Duration {
        let beat = self.live().heartbeat_boottime.load(Ordering::Relaxed);
        Duration::from_nanos(sys::boottime().saturating_sub(beat))
    }

    /// Returns the number of times that the publisher saw its clock step back.
    pub fn clock_steps(&self) -> u64 {
        self.live().clock_steps.load(Ordering::Relaxed)
    }

    /// Returns a number that changes whenever a vertex is registered or unregistered.
    #[inline]
    pub fn directory_version(&self) -> u64 {
        // SYNC: pairs with the Release in `OwnSegment::directory_changed`.
        self.live().directory_version.load_acquire()
    }

    /// Returns the flag of waiters for entry `index`, or for any vertex if `None`. There is no flag if the
    /// publisher has no page of flags, lives in another IPC namespace, or is dead, and if this process cannot
    /// [`announce`](Self::announce) its wait.
    #[inline]
    pub(crate) fn flag(&self, index: Option<u32>) -> Option<&AtomicU32> {
        self.shared.flags.as_ref().filter(|_| self.shared.can_wait)?.flag(index)
    }

    /// Ensures that the publishers of `segments` see a flag that was raised before, or this process sees what was
    /// published before: the waiter's part of [`settle`], and the part of those publishers that leave it to waiters.
    pub(crate) fn announce(segments: &[Self]) {
        settle();
        if segments.iter().any(|segment| segment.shared.header.is_quick) {
            // It worked when the segment was opened. If it fails now, a wake-up can come late by one sleep.
            sys::barrier();
        }
    }

    /// Wakes every thread that waits for any vertex of the segment, also in other processes; they look, and sleep again.
    /// For a thread of this process that has to notice something else.
    pub fn rouse(&self) {
        Futex { timeout: Duration::ZERO }.wake(&self.live().epoch);
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({})", self.shared.path.display())
    }
}
