//! The writing side: one process makes a segment, registers vertices and publishes samples.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use skopos_model::{Kind, Topic, Unit, ValueType, unpoisoned};

use crate::entry::{self, Registered};
use crate::flags::{Flags, MARK_FOLLOWED, MARK_READ, NO_FLAGS};
use crate::header::Header;
use crate::layout::{
    ENTRY_BYTES, Entry, GROUP_BYTES, HEADER_BYTES, LIVE_OFFSET, Live, MAX_FILE_BYTES,
    MAX_NAME_BYTES, MAX_SLOTS, STATE_CLOSED, STATE_NEW, STATE_READY,
};
use crate::map::Mapping;
use crate::ring::Place;
use crate::ring::{RawVertex, VertexHead};
use crate::sync::Ordering;
use crate::sys::Futex;
use crate::wait::{Bell, settle};
use crate::writer::{Group, VertexWriter};
use crate::{Error, dir, sys};

/// Vertices that fit unless the builder says otherwise: fifty times what one node's sensors yield.
pub const DEFAULT_MAX_VERTICES: u32 = 16_384;
/// Length of the sparse file unless the builder says otherwise: room for all those vertices with
/// default rings. Memory is only used as vertices are registered.
pub const DEFAULT_MAX_BYTES: u64 = 128 << 20;
/// Slots of a ring unless the vertex says otherwise: two minutes at one sample a second.
pub const DEFAULT_SLOTS: u32 = 128;
/// Byte ring of a structured vertex: four values of the greatest length.
const BYTE_RING_BYTES: u32 = 4 * skopos_model::MAX_STRUCTURED_BYTES as u32;
/// Groups that fit: one a sensor, with room for a user's own.
const MAX_GROUPS: u32 = 256;

/// Who cares for a vertex; see [`Publisher::take_interest`]. A hint: anybody may claim it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Somebody read it.
    pub read: bool,
    /// Somebody follows it and wants each change as it comes.
    pub followed: bool,
}

/// What a vertex to be registered is.
#[derive(Clone, Debug)]
pub struct VertexSpec {
    topic: Topic,
    value_type: ValueType,
    kind: Kind,
    unit: Unit,
    slots: u32,
}

impl VertexSpec {
    /// A gauge without unit and with [`DEFAULT_SLOTS`].
    pub fn new(topic: Topic, value_type: ValueType) -> Self {
        Self { topic, value_type, kind: Kind::Gauge, unit: Unit::NONE, slots: DEFAULT_SLOTS }
    }

    /// How its values move.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// The unit of its values.
    #[must_use]
    pub fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// How many samples stay in memory: a power of two, at most [`MAX_SLOTS`].
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }
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
    /// The node's name in the header, for people; at most [`MAX_NAME_BYTES`] are kept.
    #[must_use]
    pub fn node(mut self, node: &str) -> Self {
        self.node = node.chars().filter(char::is_ascii_graphic).take(MAX_NAME_BYTES).collect();
        self
    }

    /// Another runtime directory than [`crate::runtime_dir`].
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = dir.into();
        self
    }

    /// How many vertices fit at one time.
    #[must_use]
    pub fn max_vertices(mut self, max_vertices: u32) -> Self {
        self.max_vertices = max_vertices;
        self
    }

    /// The length of the sparse file: the bound on directory and rings together.
    #[must_use]
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Makes the segment. Dead segments in the directory are removed first.
    ///
    /// # Errors
    /// [`Error::Held`] if a living process publishes under this name; [`Error::Name`];
    /// [`Error::Owner`] or [`Error::Permissions`] for a directory that is not this user's alone;
    /// [`Error::Full`] if the file system has no room; [`Error::SegmentFull`] if it would be longer
    /// than any reader maps, 4 GiB.
    pub fn create(self) -> Result<Publisher, Error> {
        dir::check_name(&self.name)?;
        dir::ensure(&self.dir)?;
        let lock = dir::DirLock::take(&self.dir)?;
        dir::remove_dead(&self.dir, &lock)?;
        let path = dir::segment_path(&self.dir, &self.name);
        if path.exists() {
            match held(&path, &self.name) {
                // Its publisher closed it just now.
                Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {}
                refusal => return Err(refusal),
            }
        }
        let inner = self.make_files(&path).inspect_err(|_| {
            let _ = fs::remove_file(path.with_extension("new"));
        })?;
        Ok(Publisher { inner: Arc::new(inner) })
    }

    fn make_files(&self, path: &Path) -> Result<Inner, Error> {
        let mut header = self.header()?;
        let public = sys::effective_uid() == 0;
        let made = Flags::make(self.max_vertices, header.created_at, public);
        let (flags, flags_id) = made.map_or((None, NO_FLAGS), |(flags, id)| (Some(flags), id));
        header.flags_id = flags_id;
        // Under another name until it is whole: what is called `.seg` is always locked and valid.
        let new_path = path.with_extension("new");
        let file = create(&new_path, 0o600, header.file_bytes)?;
        if !sys::try_lock(&file).map_err(Error::io(&new_path, "cannot lock"))? {
            return Err(held(&new_path, &self.name));
        }
        // Others may open it only now, when no lock of theirs can be in the way any more.
        if public {
            file.set_permissions(fs::Permissions::from_mode(0o644))
                .map_err(Error::io(&new_path, "cannot set its permissions"))?;
        }
        reserve(&file, &new_path, 0, header.directory_offset)?;
        let map = Mapping::map(&file, header.file_bytes as usize, true)
            .map_err(Error::io(&new_path, "cannot map"))?;
        map.store(0, &header.encode());
        let inner = Inner {
            map,
            flags,
            file,
            path: path.into(),
            registry: Mutex::new(Registry::default()),
            header,
        };
        inner.live().groups_len.store(1, Ordering::Relaxed);
        inner.heartbeat();
        debug_assert_eq!(inner.live().state.load(Ordering::Relaxed), STATE_NEW);
        // SYNC: pairs with the Acquire load of the state in `Segment::open`.
        inner.live().state.store(STATE_READY, Ordering::Release);
        fs::rename(&new_path, path).map_err(Error::io(path, "cannot rename into place"))?;
        Ok(inner)
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
        let (boot_id, pid_start_ticks) = identity()?;
        Ok(Header {
            file_bytes: file_bytes.next_multiple_of(4096),
            groups_offset,
            groups_capacity: MAX_GROUPS,
            directory_offset,
            directory_capacity: self.max_vertices,
            heap_offset,
            boot_id,
            pid: std::process::id(),
            uid: sys::effective_uid(),
            pid_start_ticks,
            created_at: sys::now().as_nanos(),
            name: self.name.clone(),
            node: self.node.clone(),
            flags_id: NO_FLAGS,
        })
    }
}

/// Who already publishes as `name`, told by the header of its segment.
fn held(path: &Path, name: &str) -> Error {
    match crate::Segment::open(path) {
        Ok(segment) => {
            Error::Held { name: name.to_owned(), pid: segment.pid(), since: segment.created_at() }
        }
        Err(e) => e,
    }
}

/// Boot id and this process's start time.
fn identity() -> Result<([u8; 16], u64), Error> {
    let boot_path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(boot_path).map_err(Error::io(boot_path, "cannot read"))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let boot_id = u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes();
    let stat_path = Path::new("/proc/self/stat");
    let stat = fs::read_to_string(stat_path).map_err(Error::io(stat_path, "cannot read"))?;
    // The command, field 2, is in parentheses and may hold spaces: count from after them.
    let after_command = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let start = after_command.split_whitespace().nth(19).and_then(|w| w.parse().ok());
    Ok((boot_id, start.unwrap_or(0)))
}

fn create(path: &Path, mode: u32, len: u64) -> Result<File, Error> {
    let _ = fs::remove_file(path);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .open(path)
        .map_err(Error::io(path, "cannot create"))?;
    // The mode again: a umask must not hide root's facts from the users of the machine.
    file.set_permissions(fs::Permissions::from_mode(mode))
        .map_err(Error::io(path, "cannot set its permissions"))?;
    file.set_len(len).map_err(Error::io(path, "cannot set its length"))?;
    Ok(file)
}

/// Puts memory behind a range of the file, so that no store to it can fail later.
fn reserve(file: &File, path: &Path, offset: u64, len: u64) -> Result<(), Error> {
    sys::allocate(file, offset, len).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::ENOMEM) => {
            Error::Full { path: path.into(), needed: len }
        }
        _ => Error::io(path, "cannot reserve memory")(e),
    })
}

/// One process's segment. Dropping it closes the segment and removes its files; its vertices are
/// gone for readers and writers alike.
#[derive(Debug)]
pub struct Publisher {
    inner: Arc<Inner>,
}

impl Publisher {
    /// A segment called `name`: 1 to 64 of `a-z 0-9 _ - .`, one a runtime directory.
    pub fn builder(name: &str) -> Builder {
        Builder {
            name: name.to_owned(),
            node: String::new(),
            dir: dir::runtime_dir(),
            max_vertices: DEFAULT_MAX_VERTICES,
            max_bytes: DEFAULT_MAX_BYTES,
        }
    }

    /// The segment's file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Registers a vertex. Readers find it at once.
    ///
    /// # Errors
    /// [`Error::Duplicate`], [`Error::Slots`], [`Error::SegmentFull`], [`Error::Full`].
    pub fn register(&self, spec: VertexSpec) -> Result<VertexWriter, Error> {
        self.inner.register(spec, 0).map(|place| VertexWriter::new(&self.inner, place))
    }

    /// Starts a group called `name`: vertices that are measured together and can be read together.
    ///
    /// # Errors
    /// [`Error::SegmentFull`]; [`Error::Name`] if longer than [`MAX_NAME_BYTES`].
    pub fn group(&self, name: &str) -> Result<Group, Error> {
        if name.len() > MAX_NAME_BYTES {
            return Err(Error::Name(name.to_owned()));
        }
        let id = self.inner.add_group(name)?;
        Ok(Group::new(&self.inner, id))
    }

    /// Takes a vertex away. Its readers find it gone, and so does every clone of its writer. A
    /// vertex of another publisher stays as it is.
    pub fn unregister(&self, vertex: &VertexWriter) {
        if vertex.is_of(&self.inner) {
            self.inner.unregister(vertex.index(), vertex.owner());
        }
    }

    /// False if nobody has read any vertex since its interest was taken last: a quick look before
    /// [`take_interest`](Self::take_interest) of each.
    pub fn is_anybody_interested(&self) -> bool {
        let entries = self.inner.live().directory_len.load(Ordering::Relaxed);
        let Some(flags) = &self.inner.flags else { return false };
        let marked = |index| flags.marks(index).is_some_and(|m| m.load(Ordering::Relaxed) != 0);
        (0..entries).any(marked)
    }

    /// Who has read `vertex` since this was asked last. Where readers cannot leave marks (no System
    /// V memory, another IPC namespace) it says that nobody has.
    pub fn take_interest(&self, vertex: &VertexWriter) -> Interest {
        let marks = self.inner.flags.as_ref().and_then(|flags| flags.marks(vertex.index()));
        let Some(marks) = marks.filter(|marks| marks.load(Ordering::Relaxed) != 0) else {
            return Interest::default();
        };
        let marks = marks.swap(0, Ordering::Relaxed);
        Interest { read: marks & MARK_READ != 0, followed: marks & MARK_FOLLOWED != 0 }
    }

    /// Says that this process is alive and at work. A publisher that ticks does so by itself.
    pub fn heartbeat(&self) {
        self.inner.heartbeat();
    }

    /// True while new readers find this segment: its file is where it was made. False once somebody
    /// removed it by hand, or the directory with it.
    pub fn is_published(&self) -> bool {
        dir::is_own(&self.inner.path, &self.inner.file)
    }

    /// Counts a step back of the clock, for readers to see.
    pub fn count_clock_step(&self) {
        self.inner.live().clock_steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of the heap ever handed out, directory and header included: what the segment costs.
    pub fn used_bytes(&self) -> u64 {
        self.inner.header.heap_offset.min(
            self.inner.header.directory_offset
                + u64::from(self.inner.live().directory_len.load(Ordering::Relaxed))
                    * ENTRY_BYTES as u64,
        ) + self.inner.live().heap_used.load(Ordering::Relaxed)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.inner.close();
    }
}

/// What all handles of one segment share.
#[derive(Debug)]
pub(crate) struct Inner {
    map: Mapping,
    /// `None` where the system has none to give; then nobody waits in the kernel.
    flags: Option<Flags>,
    /// Holds the lock that says "alive".
    file: File,
    path: PathBuf,
    header: Header,
    registry: Mutex<Registry>,
}

/// The publisher's own book of what is where. Only used to register and unregister.
#[derive(Debug, Default)]
struct Registry {
    by_topic: HashMap<Topic, u32>,
    free_entries: Vec<u32>,
    /// Memory of unregistered vertices, by exact size: what once was a vertex stays one, so that a
    /// late reader of the old one never meets anything else there.
    free_places: HashMap<(u32, u32), Vec<u64>>,
    closed: bool,
}

/// Where a newly registered vertex is.
pub(crate) struct NewVertex {
    pub(crate) topic: Topic,
    pub(crate) value_type: ValueType,
    pub(crate) group: u32,
    pub(crate) place: Place,
    pub(crate) index: u32,
    pub(crate) owner: u64,
}

impl Inner {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        // A panic while registering leaves at worst an entry unused.
        unpoisoned(self.registry.lock())
    }

    pub(crate) fn live(&self) -> &Live {
        debug_assert!(self.map.live().is_some(), "{LIVE_OFFSET} lies in every segment");
        // The mapping is at least one page long; `create` saw to that.
        self.map.live().unwrap_or_else(|| unreachable!("a segment has a header"))
    }

    pub(crate) fn group(&self, id: u32) -> &crate::layout::Group {
        self.map
            .group(self.header.groups_offset, id)
            .unwrap_or_else(|| unreachable!("a group's id comes from `add_group`"))
    }

    pub(crate) fn vertex(&self, place: &Place) -> RawVertex<'_> {
        self.map.vertex(place).unwrap_or_else(|| unreachable!("a place comes from `register`"))
    }

    /// Wakes those who wait for the vertex of entry `index`, and those who wait for any.
    pub(crate) fn ring(&self, index: u32, head: &VertexHead) {
        self.ring_all(std::iter::once((index, head)));
    }

    /// The same for several vertices at once.
    pub(crate) fn ring_all<'a>(&self, vertices: impl Iterator<Item = (u32, &'a VertexHead)>) {
        let Some(flags) = &self.flags else { return };
        settle();
        for (index, head) in vertices {
            if let Some(flag) = flags.flag(Some(index)) {
                Bell { flag, epoch: &head.epoch }.ring(&WAKE);
            }
        }
        if let Some(flag) = flags.flag(None) {
            Bell { flag, epoch: &self.live().epoch }.ring(&WAKE);
        }
    }

    pub(crate) fn heartbeat(&self) {
        self.live().heartbeat_at.store(sys::now().as_nanos(), Ordering::Relaxed);
        self.live().heartbeat_boottime.store(sys::boottime(), Ordering::Relaxed);
    }

    fn full(&self, what: &'static str, capacity: impl Into<u64>) -> Error {
        Error::SegmentFull { segment: self.header.name.clone(), what, capacity: capacity.into() }
    }

    fn entry(&self, index: u32) -> Option<&Entry> {
        let at = u64::from(index) * ENTRY_BYTES as u64;
        self.map.at(self.header.directory_offset + at)
    }

    pub(crate) fn register(&self, spec: VertexSpec, group: u32) -> Result<NewVertex, Error> {
        if !spec.slots.is_power_of_two() || spec.slots > MAX_SLOTS {
            return Err(Error::Slots(spec.slots));
        }
        let mut registry = self.registry();
        if registry.closed {
            return Err(Error::Gone(spec.topic));
        }
        if registry.by_topic.contains_key(&spec.topic) {
            return Err(Error::Duplicate(spec.topic));
        }
        let structured = spec.value_type == ValueType::Structured;
        let byte_ring_bytes = if structured { BYTE_RING_BYTES } else { 0 };
        let index = self.take_entry(&mut registry)?;
        let place = match self.take_place(&mut registry, spec.slots, byte_ring_bytes) {
            Ok(place) => place,
            Err(e) => {
                registry.free_entries.push(index);
                return Err(e);
            }
        };
        let entry = self.entry(index).unwrap_or_else(|| unreachable!("within the capacity"));
        let registered = Registered {
            version: 0,
            place,
            value_type: spec.value_type,
            kind: spec.kind,
            unit: spec.unit,
            topic: spec.topic.clone(),
            group,
            registered_at: sys::now(),
        };
        // The vertex first, for the version that the entry is about to get: who finds the entry
        // finds its vertex ready.
        let version = entry.version.load(Ordering::Relaxed).wrapping_add(2);
        let owner = entry::owner(index, version);
        self.vertex(&place).adopt(owner);
        let written = entry::write(entry, Some(&registered));
        debug_assert_eq!(written, version);
        // SYNC: pairs with the Acquire load in `Segment::entries`.
        self.live().directory_len.fetch_max(index + 1, Ordering::Release);
        registry.by_topic.insert(spec.topic.clone(), index);
        self.directory_changed();
        let Registered { topic, value_type, .. } = registered;
        Ok(NewVertex { topic, value_type, group, place, index, owner })
    }

    fn take_entry(&self, registry: &mut Registry) -> Result<u32, Error> {
        if let Some(index) = registry.free_entries.pop() {
            return Ok(index);
        }
        let index = self.live().directory_len.load(Ordering::Relaxed);
        if index >= self.header.directory_capacity {
            return Err(self.full("vertices", self.header.directory_capacity));
        }
        let offset = self.header.directory_offset + u64::from(index) * ENTRY_BYTES as u64;
        reserve(&self.file, &self.path, offset, ENTRY_BYTES as u64)?;
        Ok(index)
    }

    fn take_place(
        &self,
        registry: &mut Registry,
        slots: u32,
        byte_ring_bytes: u32,
    ) -> Result<Place, Error> {
        let reused = registry.free_places.get_mut(&(slots, byte_ring_bytes)).and_then(Vec::pop);
        if let Some(offset) = reused {
            return Ok(Place { offset, slots, byte_ring_bytes });
        }
        let used = self.live().heap_used.load(Ordering::Relaxed);
        let bytes = Place::bytes(slots, byte_ring_bytes);
        let offset = self.header.heap_offset + used;
        if offset + bytes > self.header.file_bytes {
            return Err(self.full("bytes", self.header.file_bytes));
        }
        reserve(&self.file, &self.path, offset, bytes)?;
        self.live().heap_used.store(used + bytes, Ordering::Relaxed);
        Ok(Place { offset, slots, byte_ring_bytes })
    }

    pub(crate) fn unregister(&self, index: u32, owner: u64) {
        let mut registry = self.registry();
        let Some(entry) = self.entry(index) else { return };
        let Some(registered) = entry::read(entry) else { return };
        if entry::owner(index, registered.version) != owner {
            return;
        }
        self.retire(entry, &registered, index);
        registry.by_topic.remove(&registered.topic);
        registry.free_entries.push(index);
        let Place { offset, slots, byte_ring_bytes } = registered.place;
        registry.free_places.entry((slots, byte_ring_bytes)).or_default().push(offset);
        self.directory_changed();
    }

    /// Takes the vertex from its entry and wakes those who wait for it, to find it gone.
    fn retire(&self, entry: &Entry, registered: &Registered, index: u32) {
        let vertex = self.vertex(&registered.place);
        vertex.abandon();
        entry::write(entry, None);
        self.ring(index, vertex.head);
    }

    fn directory_changed(&self) {
        // SYNC: pairs with the Acquire load in `Segment::directory_version`.
        self.live().directory_version.fetch_add(1, Ordering::Release);
        self.ring_all(std::iter::empty());
    }

    fn add_group(&self, name: &str) -> Result<u32, Error> {
        let _registry = self.registry();
        let id = self.live().groups_len.load(Ordering::Relaxed);
        if id >= self.header.groups_capacity {
            return Err(self.full("groups", self.header.groups_capacity));
        }
        let group = self.group(id);
        for (word, chunk) in group.name.iter().zip(name.as_bytes().chunks(4)) {
            let mut bytes = [0; 4];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u32::from_le_bytes(bytes), Ordering::Relaxed);
        }
        group.name_len.store(name.len() as u32, Ordering::Relaxed);
        // SYNC: pairs with the Acquire load in `Segment::group_name`.
        self.live().groups_len.store(id + 1, Ordering::Release);
        Ok(id)
    }

    fn close(&self) {
        let mut registry = self.registry();
        registry.closed = true;
        for (_, index) in registry.by_topic.drain() {
            if let Some(entry) = self.entry(index)
                && let Some(registered) = entry::read(entry)
            {
                self.retire(entry, &registered, index);
            }
        }
        // SYNC: pairs with the Acquire load in `Segment::is_alive`.
        self.live().state.store(STATE_CLOSED, Ordering::Release);
        self.directory_changed();
        dir::remove_own(&self.path, &self.file);
    }
}

/// For waking alone; the timeout is that of sleepers.
const WAKE: Futex = Futex { timeout: Duration::ZERO };
