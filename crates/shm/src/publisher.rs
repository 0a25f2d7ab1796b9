//! The publisher: one process makes a segment, registers vertices and publishes samples.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::dead::remove_dead;
use crate::error::Error;
use crate::flags::{Flags, NO_FLAGS};
use crate::header::Header;
use crate::layout::{
    ENTRY_BYTES, GROUP_BYTES, HEADER_BYTES, MAX_FILE_BYTES, MAX_NAME_BYTES, Marks, STATE_NEW,
    STATE_READY,
};
use crate::map::Mapping;
use crate::own_segment::{OwnSegment, reserve};
use crate::process::{Identity, Maker};
use crate::segment::Segment;
use crate::spec::VertexSpec;
use crate::sync::{AtomicU8, Ordering};
use crate::writer::{Group, VertexWriter};
use crate::{dir, marks, sys};

/// Default number of vertices that fit: fifty times the facts of one node's sensors.
pub const DEFAULT_MAX_VERTICES: u32 = 16_384;
/// Default length of the sparse file: room for all these vertices with default rings. Memory is only used
/// when vertices are registered.
pub const DEFAULT_MAX_BYTES: u64 = 128 << 20;
/// Number of groups that fit: one for each sensor, with room for groups of users.
const MAX_GROUPS: u32 = 256;

/// The interest of readers in a vertex; see [`Publisher::take_interest`]. A hint: any reader may claim it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// A reader read it.
    pub read: bool,
    /// A reader follows it and needs each change at once.
    pub followed: bool,
}

/// Makes a [`Publisher`].
#[derive(Clone, Debug)]
pub struct Builder {
    name: String,
    node: String,
    dir: PathBuf,
    max_vertices: u32,
    max_bytes: u64,
}

impl Builder {
    /// Sets the node's name in the header, for people; cut to [`MAX_NAME_BYTES`].
    #[must_use]
    pub fn node(mut self, node: &str) -> Self {
        self.node = node.chars().filter(char::is_ascii_graphic).take(MAX_NAME_BYTES).collect();
        self
    }

    /// Sets the runtime directory, instead of [`crate::runtime_dir`].
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = dir.into();
        self
    }

    /// Sets the number of vertices that fit at one time.
    #[must_use]
    pub fn max_vertices(mut self, max_vertices: u32) -> Self {
        self.max_vertices = max_vertices;
        self
    }

    /// Sets the length of the sparse file: the bound on directory and rings together.
    #[must_use]
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Makes the segment. Dead segments in the directory are removed first.
    ///
    /// # Errors
    /// [`Error::Held`] if a living process publishes under this name; [`Error::Name`];
    /// [`Error::Owner`] or [`Error::Permissions`] if another user owns or may write the directory;
    /// [`Error::Full`] if the file system has no room; [`Error::SegmentFull`] if the segment would be
    /// longer than any reader maps, 4 GiB.
    pub fn create(self) -> Result<Publisher, Error> {
        dir::check_name(&self.name)?;
        dir::ensure(&self.dir)?;
        let lock = dir::DirLock::take(&self.dir)?;
        remove_dead(&self.dir, &lock)?;
        let path = dir::segment_path(&self.dir, &self.name);
        if path.exists() {
            match held(&path, &self.name) {
                // Its publisher just closed it.
                Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {}
                refusal => return Err(refusal),
            }
        }
        let segment = self.make_files(&path).inspect_err(|_| {
            let _ = fs::remove_file(path.with_extension("new"));
        })?;
        Ok(Publisher { segment: Arc::new(segment) })
    }

    fn make_files(&self, path: &Path) -> Result<OwnSegment, Error> {
        let maker = Maker::this().map_err(Error::io(path, NO_MAKER))?;
        let mut header = self.header()?;
        let public = sys::effective_uid() == 0;
        let made = Flags::make(self.max_vertices, header.created_at, public);
        let (flags, flags_id) = made.map_or((None, NO_FLAGS), |(flags, id)| (Some(flags), id));
        header.flags_id = flags_id;
        // The file has another name until it is complete: a `.seg` file is always locked and valid.
        let new_path = path.with_extension("new");
        let file = dir::create_file(&new_path, 0o600, header.file_bytes)?;
        if !sys::try_lock(&file).map_err(Error::io(&new_path, "cannot lock"))? {
            return Err(held(&new_path, &self.name));
        }
        // Other users may open the file only now: earlier, a lock of theirs could prevent ours.
        if public {
            file.set_permissions(fs::Permissions::from_mode(0o644))
                .map_err(Error::io(&new_path, "cannot set its permissions"))?;
        }
        reserve(&file, &new_path, 0, header.directory_offset)?;
        let map = Mapping::map(&file, header.file_bytes as usize, true)
            .map_err(Error::io(&new_path, "cannot map"))?;
        map.store(0, &header.encode());
        let segment = OwnSegment::new(maker, map, flags, file, path.into(), header);
        segment.live().groups_len.store(1, Ordering::Relaxed);
        segment.heartbeat();
        debug_assert_eq!(segment.live().state.load(Ordering::Relaxed), STATE_NEW);
        // SYNC: pairs with the Acquire load of the state in `Segment::open`.
        segment.live().state.store(STATE_READY, Ordering::Release);
        fs::rename(&new_path, path).map_err(Error::io(path, "cannot rename into place"))?;
        Ok(segment)
    }

    fn header(&self) -> Result<Header, Error> {
        let groups_offset = HEADER_BYTES as u64;
        let directory_offset = groups_offset + u64::from(MAX_GROUPS) * GROUP_BYTES as u64;
        let directory_bytes = u64::from(self.max_vertices) * ENTRY_BYTES as u64;
        let heap_offset = (directory_offset + directory_bytes).next_multiple_of(4096);
        let file_bytes = self.max_bytes.max(heap_offset);
        if file_bytes > MAX_FILE_BYTES {
            let (segment, what) = (self.name.clone(), "bytes");
            return Err(Error::SegmentFull { segment, what, capacity: MAX_FILE_BYTES });
        }
        Ok(Header {
            file_bytes: file_bytes.next_multiple_of(4096),
            groups_offset,
            groups_capacity: MAX_GROUPS,
            directory_offset,
            directory_capacity: self.max_vertices,
            heap_offset,
            publisher: Identity::this()?,
            uid: sys::effective_uid(),
            created_at: sys::now().as_nanos(),
            name: self.name.clone(),
            node: self.node.clone(),
            flags_id: NO_FLAGS,
            is_quick: sys::take_part_in_barriers(),
        })
    }
}

/// Returns the error for a `name` in use, with the publisher from the header of its segment.
fn held(path: &Path, name: &str) -> Error {
    match Segment::open(path) {
        Ok(segment) => {
            Error::Held { name: name.to_owned(), pid: segment.pid(), since: segment.created_at() }
        }
        Err(e) => e,
    }
}

/// The action of which [`Builder::create`] says that it failed on Linux before 4.14.
const NO_MAKER: &str = "cannot tell this process from its children";

/// The segment of one process. Dropping it closes the segment and removes its files; its vertices are
/// then gone for readers and writers.
///
/// After `fork`, the publisher stays with the parent. In the child, each call that writes returns
/// [`Error::Forked`] or does nothing, and dropping the copy leaves the segment as it is: the child makes a
/// publisher of its own.
#[derive(Debug)]
pub struct Publisher {
    segment: Arc<OwnSegment>,
}

impl Publisher {
    /// Prepares a segment called `name`: 1 to 64 of the characters `a-z 0-9 _ - .`, unique in its runtime
    /// directory.
    pub fn builder(name: &str) -> Builder {
        Builder {
            name: name.to_owned(),
            node: String::new(),
            dir: dir::runtime_dir(),
            max_vertices: DEFAULT_MAX_VERTICES,
            max_bytes: DEFAULT_MAX_BYTES,
        }
    }

    /// Returns the path of the segment's file.
    pub fn path(&self) -> &Path {
        &self.segment.path
    }

    /// Registers a vertex. Readers can find it at once.
    ///
    /// # Errors
    /// [`Error::Duplicate`], [`Error::Slots`], [`Error::SegmentFull`], [`Error::Full`], [`Error::Forked`].
    pub fn register(&self, spec: VertexSpec) -> Result<VertexWriter, Error> {
        self.segment.register(spec, 0).map(|place| VertexWriter::new(&self.segment, place))
    }

    /// Makes a group called `name`: vertices that are measured together and can be read together.
    ///
    /// # Errors
    /// [`Error::SegmentFull`]; [`Error::Name`] if `name` is longer than [`MAX_NAME_BYTES`];
    /// [`Error::Forked`].
    pub fn group(&self, name: &str) -> Result<Group, Error> {
        if name.len() > MAX_NAME_BYTES {
            return Err(Error::Name(name.to_owned()));
        }
        let id = self.segment.add_group(name)?;
        Ok(Group::new(&self.segment, id))
    }

    /// Unregisters a vertex. It is gone for its readers and for every clone of its writer. A vertex of
    /// another publisher stays.
    pub fn unregister(&self, vertex: &VertexWriter) {
        if vertex.is_of(&self.segment) {
            self.segment.unregister(vertex.index(), vertex.owner());
        }
    }

    /// Returns false if no reader has read any vertex since its interest was taken last: a quick check
    /// before [`take_interest`](Self::take_interest) of each vertex.
    pub fn has_interest(&self) -> bool {
        let entries = self.segment.live().directory_len.load(Ordering::Relaxed);
        let Some(flags) = &self.segment.flags else { return false };
        let marked = |index| flags.marks(index).is_some_and(Marks::are_set);
        (0..entries).any(marked)
    }

    /// Returns the interest of readers in `vertex` since the last call. Without marks of readers (no System
    /// V memory, another IPC namespace) there is no interest.
    pub fn take_interest(&self, vertex: &VertexWriter) -> Interest {
        if !self.segment.is_own() {
            return Interest::default();
        }
        let set = self.segment.flags.as_ref().and_then(|flags| flags.marks(vertex.index()));
        let Some(set) = set.filter(|marks| marks.are_set()) else {
            return Interest::default();
        };
        let swap = |mark: &AtomicU8| mark.swap(0, Ordering::Relaxed) != 0;
        marks::take(&vertex.head().interest, || Interest {
            read: swap(&set.read),
            followed: swap(&set.followed),
        })
    }

    /// Reports that this process is alive and works. A tick does this by itself.
    pub fn heartbeat(&self) {
        self.segment.heartbeat();
    }

    /// Returns true while new readers can find this segment: its file is still at its path. Returns false
    /// after the file or its directory was removed by hand.
    pub fn is_published(&self) -> bool {
        dir::is_own(&self.segment.path, &self.segment.file)
    }

    /// Counts a step back of the clock; readers see the count.
    pub fn count_clock_step(&self) {
        if self.segment.is_own() {
            self.segment.live().clock_steps.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the memory of the segment in bytes: the heap ever allocated, the directory and the header.
    pub fn used_bytes(&self) -> u64 {
        self.segment.header.heap_offset.min(
            self.segment.header.directory_offset
                + u64::from(self.segment.live().directory_len.load(Ordering::Relaxed))
                    * ENTRY_BYTES as u64,
        ) + self.segment.live().heap_used.load(Ordering::Relaxed)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.segment.close();
    }
}
