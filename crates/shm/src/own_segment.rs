//! A segment from the side of its publisher: the writable mapping, the flags and the registry of vertices.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use skopos_model::{MAX_STRUCTURED_BYTES, Timestamp, Topic, ValueType, unpoisoned};

use crate::clocks::{BothClocks, Clocks, Difference};
use crate::entry::{self, Registered};
use crate::error::Error;
use crate::flags::Flags;
use crate::header::Header;
use crate::layout::{ENTRY_BYTES, Entry, Group, LIVE_OFFSET, Live, MAX_SLOTS, STATE_CLOSED};
use crate::map::{Mapping, Pinned, PinnedVertex};
use crate::process::Maker;
use crate::ring::{Moment, Place, RawVertex, VertexHead};
use crate::spec::VertexSpec;
use crate::sync::{AtomicU32, Ordering};
use crate::sys::Futex;
use crate::wait::{Bell, settle, settle_quickly};
use crate::{dir, sys};

/// Length of the byte ring of a structured vertex: four values of the greatest length.
const BYTE_RING_BYTES: u32 = 4 * MAX_STRUCTURED_BYTES as u32;

/// The state that all handles of one segment share.
#[derive(Debug)]
pub(crate) struct OwnSegment {
    maker: Maker,
    map: Mapping,
    /// `None` if the system has no System V memory left; readers then poll instead of sleeping.
    pub(crate) flags: Option<Flags>,
    /// Holds the lock that marks the publisher as alive.
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    clocks: Clocks,
    registry: Mutex<Registry>,
}

/// Reads both clocks.
#[cold]
fn read_clocks() -> BothClocks {
    BothClocks { now: sys::now().as_nanos(), boottime: sys::boottime().cast_signed() }
}

/// The publisher's record of entries and memory. Only used to register and unregister.
#[derive(Debug, Default)]
struct Registry {
    by_topic: HashMap<Topic, u32>,
    free_entries: Vec<u32>,
    /// Memory of unregistered vertices, by exact size. It is only reused for vertices, so that a late reader
    /// of an old vertex always finds a vertex there.
    free_places: HashMap<(u32, u32), Vec<u64>>,
    closed: bool,
}

/// A newly registered vertex: its entry and its place.
pub(crate) struct NewVertex {
    pub(crate) topic: Topic,
    pub(crate) value_type: ValueType,
    pub(crate) group: u32,
    pub(crate) place: Place,
    pub(crate) index: u32,
    pub(crate) owner: u64,
}

impl OwnSegment {
    pub(crate) fn new(
        maker: Maker,
        map: Mapping,
        flags: Option<Flags>,
        file: File,
        path: PathBuf,
        header: Header,
    ) -> Self {
        let registry = Mutex::new(Registry::default());
        let clocks = Clocks::default();
        Self { maker, map, flags, file, path, header, clocks, registry }
    }

    /// Returns the moment of `time` on both clocks.
    #[inline]
    pub(crate) fn moment(&self, time: Timestamp) -> Moment {
        self.clocks.moment(time, read_clocks)
    }

    /// Returns the difference of both clocks at `time`, for the only writer of a vertex to keep.
    #[cold]
    pub(crate) fn difference(&self, time: Timestamp) -> Difference {
        self.clocks.difference(time, read_clocks)
    }

    /// Returns the vertex at `place`, for a writer to keep.
    pub(crate) fn pin_vertex(&self, place: &Place) -> PinnedVertex {
        self.map.pin_vertex(place).unwrap_or_else(|| unreachable!("a place comes from `register`"))
    }

    /// Returns the flags of waiters for the vertex of entry `index` and for any vertex.
    pub(crate) fn pin_flags(&self, index: u32) -> Option<[Pinned<AtomicU32>; 2]> {
        let flags = self.flags.as_ref()?;
        Some([flags.pin_flag(Some(index))?, flags.pin_flag(None)?])
    }

    /// Returns true in the process that made the segment, and false in its children.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.maker.is_this()
    }

    /// Checks that this is the process that made the segment; on the way to each write.
    #[inline]
    pub(crate) fn check_own(&self) -> Result<(), Error> {
        if self.is_own() { Ok(()) } else { Err(self.forked()) }
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::Forked { segment: self.header.name.clone(), pid: self.header.publisher.pid }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // A panic while registering leaves at worst an entry unused.
        unpoisoned(self.registry.lock())
    }

    #[inline]
    pub(crate) fn live(&self) -> &Live {
        debug_assert!(self.map.live().is_some(), "{LIVE_OFFSET} lies in every segment");
        // `create` made the mapping at least one page long.
        self.map.live().unwrap_or_else(|| unreachable!("a segment has a header"))
    }

    #[inline]
    pub(crate) fn group(&self, id: u32) -> &Group {
        self.map
            .group(self.header.groups_offset, id)
            .unwrap_or_else(|| unreachable!("a group's id comes from `add_group`"))
    }

    #[inline]
    pub(crate) fn vertex(&self, place: &Place) -> RawVertex<'_> {
        self.map.vertex(place).unwrap_or_else(|| unreachable!("a place comes from `register`"))
    }

    /// Wakes waiters for the vertex of entry `index` and waiters for any vertex.
    fn ring(&self, index: u32, head: &VertexHead) {
        self.ring_all(std::iter::once((index, head)));
    }

    /// Returns true if the publisher of this segment makes no fence before it looks at the flags.
    pub(crate) fn is_quick(&self) -> bool {
        self.header.is_quick
    }

    /// Returns the process that made the segment.
    pub(crate) fn maker(&self) -> Maker {
        self.maker
    }

    /// Returns true if a reader may wait for what was published before, in a vertex of which `flags` are the flags.
    #[inline]
    pub(crate) fn is_awaited(&self, [flag, any]: &[Pinned<AtomicU32>; 2]) -> bool {
        self.settle();
        Bell::is_any_up(flag, any)
    }

    /// Wakes waiters for one vertex and waiters for any vertex whose flags are up; after
    /// [`is_awaited`](Self::is_awaited).
    #[cold]
    pub(crate) fn wake(&self, [flag, any]: &[Pinned<AtomicU32>; 2], head: &VertexHead) {
        Bell { flag, epoch: &head.epoch }.ring(&WAKE);
        Bell { flag: any, epoch: &self.live().epoch }.ring(&WAKE);
    }

    /// Orders what was published before the flags of waiters that are read next.
    #[inline]
    fn settle(&self) {
        if self.header.is_quick { settle_quickly() } else { settle() }
    }

    /// Wakes waiters for several vertices and waiters for any vertex.
    #[inline]
    pub(crate) fn ring_all<'a>(&self, vertices: impl Iterator<Item = (u32, &'a VertexHead)>) {
        let Some(flags) = &self.flags else { return };
        self.settle();
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
        if !self.is_own() {
            return;
        }
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
        self.check_own()?;
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
        // The vertex comes first, for the version that the entry is about to get: a reader that finds
        // the entry finds its vertex ready.
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
        if !self.is_own() {
            return;
        }
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

    /// Takes the vertex from its entry and wakes its waiters, which find it gone.
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

    pub(crate) fn add_group(&self, name: &str) -> Result<u32, Error> {
        self.check_own()?;
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

    /// Closes the segment; does nothing in a child of the process that made it.
    pub(crate) fn close(&self) {
        if !self.is_own() {
            return;
        }
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

/// A futex for waking only: the timeout concerns sleepers.
const WAKE: Futex = Futex { timeout: Duration::ZERO };

/// Reserves memory for a range of the file, so that no store to it can fail later.
pub(crate) fn reserve(file: &File, path: &Path, offset: u64, len: u64) -> Result<(), Error> {
    sys::allocate(file, offset, len).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::ENOMEM) => {
            Error::Full { path: path.into(), needed: len }
        }
        _ => Error::io(path, "cannot reserve memory")(e),
    })
}
