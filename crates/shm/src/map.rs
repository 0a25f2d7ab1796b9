//! Mappings of shared memory, and checked references into them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};

use skopos_model::unpoisoned;

use crate::layout::{Entry, FIXED_BYTES, GROUP_BYTES, Group, LIVE_OFFSET, Live, Marks};
use crate::records::layout::{RECORDS_LIVE_OFFSET, RecordSlot, RecordsLive, RingHead};
use crate::records::ring::RawRing;
use crate::ring::{Place, RawVertex, Slot, VertexHead};
use crate::sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Mapped memory. All access is through atomics, because other processes change it at the same time.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    is_writable: bool,
    /// Keeps the memory mapped.
    memory: Arc<Memory>,
}

// SAFETY: the memory is shared with other processes and only accessed through atomics; it stays mapped
// while `memory` lives.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Owns mapped memory and unmaps it.
#[derive(Debug)]
struct Memory {
    base: NonNull<u8>,
    len: usize,
    /// True for a System V segment, false for a file.
    is_system_v: bool,
}

// SAFETY: nothing reads or changes the memory through this owner.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// The files that this process has mapped. Its readers share one mapping, also with its publisher: the
/// resident memory of a process contains the pages of each of its mappings.
static FILES: Mutex<Vec<MappedFile>> = Mutex::new(Vec::new());

struct MappedFile {
    /// Device and inode: no other file can have them while this one is mapped.
    id: (u64, u64),
    memory: Weak<Memory>,
}

/// A type that may be laid over mapped memory.
///
/// # Safety
/// The type consists of atomics only, without padding that matters, and any bytes are a valid value.
pub(crate) unsafe trait Shared {}
// SAFETY: an atomic integer takes any bytes.
unsafe impl Shared for AtomicU8 {}
// SAFETY: an atomic integer takes any bytes.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic integer takes any bytes.
unsafe impl Shared for AtomicU64 {}
// SAFETY: `repr(C)`, of atomic integers.
unsafe impl Shared for Live {}
// SAFETY: `repr(C)`, of atomic integers.
unsafe impl Shared for Group {}
// SAFETY: `repr(C)`, of atomic integers.
unsafe impl Shared for Entry {}
// SAFETY: `repr(C)`, of atomic integers.
unsafe impl Shared for VertexHead {}
// SAFETY: `repr(C)`, of atomic integers.
unsafe impl Shared for Slot {}
// SAFETY: `repr(C)`, of atomic integers.
unsafe impl Shared for Marks {}
// SAFETY: `repr(C)`, of atomic integers.
unsafe impl Shared for RecordsLive {}
// SAFETY: `repr(C)`, of atomic integers.
unsafe impl Shared for RingHead {}
// SAFETY: `repr(C)`, of atomic integers.
unsafe impl Shared for RecordSlot {}

/// A value in mapped memory, which stays mapped as long as this lives. A handle that holds it gets to the value
/// without a look at the mapping: on a cold path each object on the way is a cache line that is fetched.
pub(crate) struct Pinned<T> {
    value: NonNull<T>,
    memory: Arc<Memory>,
}

// SAFETY: the value is `Shared`: of atomics, which any thread may use; the memory stays mapped.
unsafe impl<T> Send for Pinned<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Pinned<T> {}

impl<T> Clone for Pinned<T> {
    fn clone(&self) -> Self {
        Self { value: self.value, memory: Arc::clone(&self.memory) }
    }
}

impl<T> std::ops::Deref for Pinned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `Mapping::pin` checked bounds and alignment, `Shared` promises that any bytes are valid,
        // and the memory is mapped as long as `self` is borrowed.
        unsafe { self.value.as_ref() }
    }
}

impl<T> std::fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinned({:?})", self.value)
    }
}

/// A vertex in mapped memory, like [`Pinned`].
#[derive(Debug)]
pub(crate) struct PinnedVertex {
    head: Pinned<VertexHead>,
    /// A slot of this vertex, into which only shared references are made.
    near: AtomicPtr<Slot>,
    slots: u32,
    byte_words: u32,
}

impl Clone for PinnedVertex {
    fn clone(&self) -> Self {
        let near = AtomicPtr::new(self.near.load(Ordering::Relaxed));
        Self { head: self.head.clone(), near, slots: self.slots, byte_words: self.byte_words }
    }
}

/// A ring of records in mapped memory, like [`Pinned`].
#[derive(Debug)]
pub(crate) struct PinnedRing {
    head: Pinned<RingHead>,
    first: NonNull<RecordSlot>,
    mask: u64,
}

// SAFETY: as for `Pinned`: the slots are of atomics, and the memory stays mapped.
unsafe impl Send for PinnedRing {}

impl PinnedRing {
    /// Returns the head of the ring.
    #[inline(always)]
    pub(crate) fn head(&self) -> &RingHead {
        &self.head
    }

    /// Returns the number of slots less one.
    #[inline(always)]
    pub(crate) fn mask(&self) -> u64 {
        self.mask
    }

    /// Returns the slot of record `ticket`.
    #[inline(always)]
    pub(crate) fn slot(&self, ticket: u64) -> &RecordSlot {
        // SAFETY: `Mapping::pin_ring` checked that `mask + 1` slots follow `first`; the rest as in `Pinned`.
        unsafe { self.first.add((ticket & self.mask) as usize).as_ref() }
    }
}

impl PinnedVertex {
    /// Returns the head of the vertex.
    #[inline]
    pub(crate) fn head(&self) -> &VertexHead {
        &self.head
    }

    /// Returns the slot that [`go_to`](Self::go_to) found last; the first slot before that. Without arithmetic on the
    /// way to it: this is the longest path of a read of the latest value.
    #[inline(always)]
    pub(crate) fn near(&self) -> &Slot {
        // SAFETY: `near` is only set by `pin_vertex` and `go_to`, to a slot of this vertex; the rest as in `Pinned`.
        unsafe { &*self.near.load(Ordering::Relaxed) }
    }

    /// Has the processor fetch the slot behind [`near`](Self::near), which is not waited for. A program that reads as often
    /// as its publisher publishes finds the sample there, and often in another cache line.
    #[inline(always)]
    pub(crate) fn fetch_next(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let next = self.near.load(Ordering::Relaxed).wrapping_add(1);
            // SAFETY: the instruction takes any address, and reads and changes nothing that a program sees.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(next.cast_const().cast()) };
        }
    }

    /// Returns the slot of sample `ticket`, and remembers it for [`near`](Self::near).
    #[inline(always)]
    pub(crate) fn go_to(&self, ticket: u64) -> &Slot {
        let slot = self.slot(ticket);
        self.near.store(std::ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
        slot
    }

    /// Returns the number of slots.
    #[inline]
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the slot of sample `ticket`.
    #[inline(always)]
    pub(crate) fn slot(&self, ticket: u64) -> &Slot {
        let offset = ticket as u32 & (self.slots - 1);
        // SAFETY: `Mapping::pin_vertex` checked that `slots` slots follow the head, and that the number is a power of two,
        // so the masked ticket is that of one of them; the rest as in `Pinned`.
        unsafe { self.head.value.add(1).cast::<Slot>().add(offset as usize).as_ref() }
    }

    /// Returns the vertex.
    #[inline]
    pub(crate) fn raw(&self) -> RawVertex<'_> {
        let (slots, byte_words) = (self.slots as usize, self.byte_words as usize);
        // SAFETY: `Mapping::pin_vertex` checked that the head, this number of slots and this number of words lie
        // one behind the other in the mapping; the rest as in `Pinned`.
        unsafe {
            let first = self.head.value.add(1).cast::<Slot>();
            let bytes = first.add(slots).cast::<AtomicU64>();
            RawVertex {
                head: &self.head,
                slots: std::slice::from_raw_parts(first.as_ptr(), slots),
                bytes: std::slice::from_raw_parts(bytes.as_ptr(), byte_words),
            }
        }
    }
}

impl Mapping {
    /// Maps the first `len` bytes of `file`, shared. A mapping for reading may use the memory of another
    /// mapping of this process.
    pub(crate) fn map(file: &File, len: usize, is_writable: bool) -> io::Result<Self> {
        let about = file.metadata()?;
        let id = (about.dev(), about.ino());
        let mut files = unpoisoned(FILES.lock());
        files.retain(|file| file.memory.strong_count() > 0);
        if !is_writable {
            let same = files.iter().filter(|file| file.id == id);
            let mut memories = same.filter_map(|file| file.memory.upgrade());
            if let Some(memory) = memories.find(|memory| memory.len == len) {
                return Ok(Self::of(memory, false));
            }
        }
        let protection = libc::PROT_READ | if is_writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps no other memory.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        let memory = Arc::new(Memory { base, len, is_system_v: false });
        files.push(MappedFile { id, memory: Arc::downgrade(&memory) });
        Ok(Self::of(memory, is_writable))
    }

    fn of(memory: Arc<Memory>, is_writable: bool) -> Self {
        Self { base: memory.base, len: memory.len, is_writable, memory }
    }

    /// Makes a System V segment of `len` zero bytes and returns it with its id. It vanishes with its last
    /// user. Unlike a file it cannot be truncated, also not by a process that may write it.
    pub(crate) fn make_system_v(len: usize, mode: u32) -> io::Result<(Self, i32)> {
        // SAFETY: takes numbers and touches no memory of ours.
        let id =
            unsafe { libc::shmget(libc::IPC_PRIVATE, len, mode as libc::c_int | libc::IPC_CREAT) };
        if id == -1 {
            return Err(io::Error::last_os_error());
        }
        let mapping = Self::attach_system_v(id, len);
        // Mark it for removal at once: Linux lets others attach by id as long as a process is attached.
        // SAFETY: the command takes no buffer.
        unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        Ok((mapping?, id))
    }

    /// Attaches System V segment `id`, if `owner` owns it and it has at least `len` bytes.
    pub(crate) fn find_system_v(id: i32, len: usize, owner: u32) -> io::Result<Self> {
        // SAFETY: `shmid_ds` is a plain C structure for which all zeros is a valid value.
        let mut about: libc::shmid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: the command fills `about`, which outlives the call.
        if unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut about) } == -1 {
            return Err(io::Error::last_os_error());
        }
        if about.shm_perm.uid != owner || about.shm_segsz < len {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        Self::attach_system_v(id, len)
    }

    fn attach_system_v(id: i32, len: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps no other memory.
        let base = unsafe { libc::shmat(id, std::ptr::null(), 0) };
        if base.addr() == usize::MAX {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self::of(Arc::new(Memory { base, len, is_system_v: true }), true))
    }

    /// Returns `count` values of `T` at `offset`, if they lie in the mapping and are aligned.
    #[inline]
    pub(crate) fn slice<T: Shared>(&self, offset: u64, count: usize) -> Option<&[T]> {
        let offset = usize::try_from(offset).ok()?;
        let bytes = count.checked_mul(size_of::<T>())?;
        let end = offset.checked_add(bytes)?;
        if end > self.len || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: in bounds and aligned, by the checks above (the base is page-aligned); `Shared`
        // promises that any bytes are valid; atomics tolerate the other processes that write here. The
        // memory stays mapped as long as `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset).cast(), count) })
    }

    /// Returns one value of `T` at `offset`, if it lies in the mapping and is aligned.
    #[inline]
    pub(crate) fn at<T: Shared>(&self, offset: u64) -> Option<&T> {
        self.slice(offset, 1)?.first()
    }

    /// Returns a value of `T` at `offset` with its memory, if it lies in the mapping and is aligned.
    pub(crate) fn pin<T: Shared>(&self, offset: u64) -> Option<Pinned<T>> {
        self.at::<T>(offset)?;
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: the offset lies in the mapping, by the check above.
        let value = unsafe { self.base.add(offset) }.cast();
        Some(Pinned { value, memory: Arc::clone(&self.memory) })
    }

    /// Returns the vertex at `place` with its memory, if it lies in the mapping and its number of slots is a power of two.
    pub(crate) fn pin_vertex(&self, place: &Place) -> Option<PinnedVertex> {
        let raw = self.vertex(place)?;
        place.slots.is_power_of_two().then_some(())?;
        let near = AtomicPtr::new(raw.slots.as_ptr().cast_mut());
        let (slots, byte_words) = (place.slots, place.byte_ring_bytes / 8);
        Some(PinnedVertex { head: self.pin(place.offset)?, near, slots, byte_words })
    }

    /// Returns the part of the header of a recorder's segment that changes.
    #[inline]
    pub(crate) fn records_live(&self) -> Option<&RecordsLive> {
        self.at(RECORDS_LIVE_OFFSET)
    }

    /// Returns the ring of records with its head and its first slot at these offsets.
    pub(crate) fn ring(&self, head: u64, slots: u64, records: u32) -> Option<RawRing<'_>> {
        Some(RawRing { head: self.at(head)?, slots: self.slice(slots, records as usize)? })
    }

    /// Returns a ring of records with its memory; `records` is a power of two.
    pub(crate) fn pin_ring(&self, head: u64, slots: u64, records: u32) -> Option<PinnedRing> {
        let raw = self.ring(head, slots, records)?;
        let (first, count) = (NonNull::from(raw.slots.first()?), raw.slots.len() as u64);
        count.is_power_of_two().then_some(())?;
        Some(PinnedRing { head: self.pin(head)?, first, mask: count - 1 })
    }

    /// Copies the fixed part of a header.
    pub(crate) fn fixed_header(&self) -> Option<[u8; FIXED_BYTES]> {
        let words = self.slice::<AtomicU64>(0, FIXED_BYTES / 8)?;
        let mut bytes = [0; FIXED_BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        Some(bytes)
    }

    /// Writes `bytes` at `offset`; length and offset are multiples of 8.
    pub(crate) fn store(&self, offset: u64, bytes: &[u8]) {
        assert!(self.is_writable, "only a publisher writes");
        let words = self.slice::<AtomicU64>(offset, bytes.len() / 8).unwrap_or_default();
        for (chunk, word) in bytes.chunks_exact(8).zip(words) {
            word.store(u64::from_le_bytes(std::array::from_fn(|i| chunk[i])), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn live(&self) -> Option<&Live> {
        self.at(LIVE_OFFSET as u64)
    }

    #[inline]
    pub(crate) fn group(&self, groups_offset: u64, id: u32) -> Option<&Group> {
        self.at(groups_offset.checked_add(u64::from(id) * GROUP_BYTES as u64)?)
    }

    /// Returns the vertex at `place`.
    #[inline]
    pub(crate) fn vertex(&self, place: &Place) -> Option<RawVertex<'_>> {
        let slots_at = place.offset.checked_add(size_of::<VertexHead>() as u64)?;
        let bytes_at = slots_at.checked_add(u64::from(place.slots) * size_of::<Slot>() as u64)?;
        Some(RawVertex {
            head: self.at(place.offset)?,
            slots: self.slice(slots_at, place.slots as usize)?,
            bytes: self.slice(bytes_at, place.byte_ring_bytes as usize / 8)?,
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let base = self.base.as_ptr();
        // SAFETY: base and length are those of the mapping, and every reference into it borrows from a
        // `Mapping`, which owns this.
        unsafe {
            if self.is_system_v {
                libc::shmdt(base.cast())
            } else {
                libc::munmap(base.cast(), self.len)
            }
        };
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_one_file_share_memory_until_the_last_ends() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(8192).expect("longer");
        let map = |len, is_writable| Mapping::map(&file, len, is_writable).expect("mapped");
        let written = map(8192, true);
        let read = map(8192, false);
        assert_eq!(read.base, written.base, "one mapping");
        assert_ne!(map(4096, false).base, written.base, "another length is another mapping");
        written.store(8, &7u64.to_le_bytes());
        drop(written);
        let word = read.at::<AtomicU64>(8).expect("in it");
        assert_eq!(word.load(Ordering::Relaxed), 7, "still mapped");
        let caught = std::panic::catch_unwind(|| read.store(8, &[0; 8]));
        assert!(caught.is_err(), "a reader cannot write");
        let id = file.metadata().map(|about| (about.dev(), about.ino())).expect("its id");
        drop(read);
        let is_mapped = |file: &MappedFile| file.id == id && file.memory.upgrade().is_some();
        assert!(!unpoisoned(FILES.lock()).iter().any(is_mapped));
    }
}
