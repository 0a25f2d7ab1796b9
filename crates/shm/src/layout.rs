//! The segment, byte by byte: layout version 1.
//!
//! A segment has two parts. The file `NAME.seg` lies in a runtime directory (`/dev/shm/skopos-<uid>/`,
//! one directory for each user); only its publisher writes it, and any process with permission maps it
//! read-only. The page of flags lies in System V shared memory; readers write it too. All numbers are
//! little-endian; every offset is in bytes from the start of the file, or of the page. Unlisted bytes
//! are reserved and zero.
//!
//! # `NAME.seg`
//!
//! The file is sparse: its length is fixed when it is created (`file_bytes`), and pages are
//! allocated when they are first used. The regions are, in this order: header, groups, directory, heap.
//!
//! **Header**, 4096 bytes at offset 0:
//!
//! | offset | type | name | meaning |
//! |---:|---|---|---|
//! | 0 | u8×8 | `magic` | `SKOPOSEG` |
//! | 8 | u32 | `layout_version` | 1; a reader refuses a version that it does not know |
//! | 12 | u32 | `header_bytes` | 4096 |
//! | 16 | u64 | `file_bytes` | length of the file |
//! | 24 | u64 | `groups_offset` | start of the groups |
//! | 32 | u32 | `groups_capacity` | number of groups that fit |
//! | 36 | u32 | `group_bytes` | 128 |
//! | 40 | u64 | `directory_offset` | start of the directory |
//! | 48 | u32 | `directory_capacity` | number of entries that fit |
//! | 52 | u32 | `entry_bytes` | 320 |
//! | 56 | u64 | `heap_offset` | start of the heap |
//! | 64 | u8×16 | `boot_id` | `/proc/sys/kernel/random/boot_id` as bytes |
//! | 80 | u32 | `pid` | process id of the publisher, in its own namespace |
//! | 84 | u32 | `uid` | its effective user id |
//! | 88 | u64 | `pid_start_ticks` | field 22 of its `/proc/PID/stat` |
//! | 96 | i64 | `created_at` | UNIX time, ns |
//! | 104 | u32 | `name_len` | length of `name` |
//! | 108 | u32 | `node_len` | length of `node` |
//! | 112 | u8×64 | `name` | the segment's name, ASCII |
//! | 176 | u8×64 | `node` | the node's name, ASCII |
//! | 240 | i32 | `flags_id` | System V id of the page of flags; -1 without a page |
//! | 244 | u32 | `is_quick` | 1: the publisher makes no full fence between a publish and its look at the flags, and a waiter calls `membarrier` instead |
//! | 248 | u64 | `pid_namespace` | inode of `/proc/self/ns/pid` of the publisher; 0 if not known |
//! | 256 | u32 | `state` | 0 under construction, 1 ready, 2 closed |
//! | 260 | u32 | `epoch` | futex word of waiters for any vertex |
//! | 264 | u64 | `directory_version` | raised by each register and unregister |
//! | 272 | u32 | `directory_len` | number of entries ever used; the entries above are zero |
//! | 276 | u32 | `groups_len` | number of groups in use |
//! | 280 | u64 | `heap_used` | bytes of the heap ever allocated |
//! | 288 | i64 | `heartbeat_at` | UNIX time of the publisher's last sign of life, ns |
//! | 296 | u64 | `heartbeat_boottime` | the same on `CLOCK_BOOTTIME`, ns |
//! | 304 | u64 | `clock_steps` | number of times that the publisher saw its clock step back |
//!
//! The publisher holds an exclusive open-file-description lock (`F_OFD_SETLK`, `l_len = 0`) on the
//! file while it lives. The kernel releases the lock when the process ends for any reason, so a segment
//! without a lock is dead. To query the lock, call `fcntl(F_OFD_GETLK)` for a *shared* lock (`F_RDLCK`,
//! `l_len = 0`): `F_UNLCK` in the answer means that no process holds it. A child that the publisher forked
//! has the open file too and keeps the lock after its parent's end. So a segment is alive only if the
//! lock is held **and** its process runs: a reader whose namespace of process ids is `pid_namespace` checks
//! that process `pid` exists and that its start time is `pid_start_ticks`. A reader in another
//! namespace has the lock alone.
//!
//! **Group**, 128 bytes each: facts that are measured together. Group 0 is not used.
//!
//! | offset | type | name | meaning |
//! |---:|---|---|---|
//! | 0 | i64 | `tick_time` | UNIX time of the last complete tick, ns; 0 before the first |
//! | 8 | u64 | `ticks` | number of complete ticks |
//! | 16 | u32 | `name_len` | length of `name` |
//! | 20 | u8×64 | `name` | ASCII |
//!
//! **Directory entry**, 320 bytes each:
//!
//! | offset | type | name | meaning |
//! |---:|---|---|---|
//! | 0 | u32 | `version` | even: stable; odd: being changed. Read it before and after the other fields |
//! | 4 | u32 | `state` | 0 free, 1 registered |
//! | 8 | u64 | `vertex_offset` | start of the vertex, a multiple of 64 |
//! | 16 | u32 | `slots` | slots of its ring, a power of two |
//! | 20 | u32 | `byte_ring_bytes` | length of its byte ring, a power of two; 0 unless structured |
//! | 24 | u8 | `value_type` | 1 f64, 2 i64, 3 u64, 4 structured |
//! | 25 | u8 | `kind` | 1 counter, 2 gauge, 3 state |
//! | 26 | u8 | `unit_len` | length of `unit` |
//! | 27 | u8 | `topic_len` | length of `topic` |
//! | 28 | u32 | `group` | the group of the vertex; 0 without a group |
//! | 32 | u8×16 | `unit` | ASCII |
//! | 48 | u8×256 | `topic` | ASCII |
//! | 304 | i64 | `registered_at` | UNIX time, ns |
//!
//! **Vertex**, in the heap: a head of 64 bytes, then `slots` slots of 32 bytes, then the byte ring.
//!
//! | offset | type | name | meaning |
//! |---:|---|---|---|
//! | 0 | u64 | `owner` | `(entry index + 1) << 32 \| entry version`; 0 when unregistered |
//! | 8 | u64 | `head` | samples ever stored; the latest is sample `head - 1` |
//! | 16 | i64 | `checked_at` | UNIX time of the last poll of the source, ns |
//! | 24 | u32 | `lock` | 1 while a writer works; readers ignore it |
//! | 28 | u32 | `epoch` | futex word of waiters for this vertex |
//! | 32 | u64 | `bytes_reserved` | end of the byte ring's last record, counted from the first byte ever written |
//! | 40 | u64 | `clamped` | number of samples whose time was before `checked_at` and was replaced by it |
//! | 48 | i64 | `checked_boottime` | the moment of `checked_at` on `CLOCK_BOOTTIME`, ns, by which ages are computed; negative before the machine started, 0 if not known |
//! | 56 | u32 | `interest` | raised by the publisher when it takes the marks of readers: a reader marks the vertex once for each value |
//! | 64 + 32 i | | slot i | sample `t` lies in slot `t mod slots` |
//! | + 0 | u64 | `mark` | `2t + 2` when sample `t` is complete; odd while a sample is being written |
//! | + 8 | i64 | `time` | UNIX time, ns |
//! | + 16 | u64 | `bits` | the value; if structured, its position in the byte ring, counted like `bytes_reserved` |
//! | + 24 | u64 | `meta` | bits 0-7 origin (0 measured, 1 predicted, 2 unknown: the sample has no value); bits 32-63 the error bound as an f32, or the length of a structured value in bytes |
//!
//! A structured value is JSON text in UTF-8. It starts at byte `bits mod byte_ring_bytes` of the
//! ring, wraps at the end of the ring, and is valid as long as
//! `bytes_reserved - bits <= byte_ring_bytes`.
//!
//! **To read the latest value:** read `checked_at`; read `head`; if it is 0, the vertex has no sample.
//! Let `t = head - 1`; read the slot's `mark`, then its fields, then `mark` again: if both are `2t + 2`
//! the sample is complete, else start over. On machines that reorder loads, put an acquire barrier
//! after each of these reads. Check that `owner` has the value that follows from the entry. The value was
//! fresh at the later of `checked_at` and the sample's time: the writer stores `head` first. Its age is the
//! time on `CLOCK_BOOTTIME` since `checked_boottime`, which no step of the clock changes.
//!
//! **To follow:** keep the number `t` of the next sample, from `head` on. While `head > t`, read slot
//! `t mod slots` as above. If its `mark` is greater than `2t + 2` before or after, the reader was lapped: go
//! on at the greater of `head - slots` and `t + 1`, and count the samples in between as lost.
//!
//! **To take a snapshot of a group:** read `tick_time`, then an acquire barrier. In each vertex, walk back
//! from `head - 1` to the first sample whose time is not after `tick_time`: that is the value of the tick. If
//! a slot on the way is lapped, read `tick_time` again and start over.
//!
//! # The page of flags
//!
//! Attach it by `shmat(flags_id)`, after `shmctl(IPC_STAT)` confirmed that it has the same owner as the
//! segment.
//!
//! | offset | type | name | meaning |
//! |---:|---|---|---|
//! | 0 | u8×8 | `magic` | `SKOPOSFL` |
//! | 8 | i64 | `made_at` | `created_at` of its segment |
//! | 64 | u32 | | flag: a waiter for any vertex raises it |
//! | 128 + 4 i | u32 | | flag: a waiter for the vertex of entry i raises it |
//! | 128 + 4 (`directory_capacity` + i) | u8×4 | | marks of entry i: byte 0 is 1 if a reader read it, byte 1 if a reader follows it. Readers store 1, the publisher takes both by storing 0; they are hints |
//!
//! **To wait:**
//!
//! 1. Read the futex word (`epoch` of the vertex or the header), then an acquire barrier.
//! 2. Store 1 to the flag.
//! 3. A full fence (`atomic_thread_fence(memory_order_seq_cst)`). If `is_quick` is 1, call
//!    `membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)` as well; if that fails, poll instead of sleeping.
//! 4. Check once more for a new sample, and for `owner`.
//! 5. `futex(FUTEX_WAIT)` on the word with the value that was read, without `FUTEX_PRIVATE_FLAG`, for at most
//!    100 ms: another reader can lower the flag. Then start over. If the call fails with anything but
//!    `EAGAIN`, `EINTR` and `ETIMEDOUT`, poll.
//!
//! The writer clears the flag, raises the word and wakes all waiters. A publisher that is killed wakes no reader: query the
//! lock every 100 ms.

use crate::sync::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

#[cfg(target_endian = "big")]
compile_error!("the layout is little-endian, so the machine must be little-endian too");

/// The first eight bytes of a `.seg` file.
pub const MAGIC: [u8; 8] = *b"SKOPOSEG";
/// The first eight bytes of a page of flags.
pub const FLAGS_MAGIC: [u8; 8] = *b"SKOPOSFL";
/// The version of this layout.
pub const LAYOUT_VERSION: u32 = 1;

/// Length of the header: one page.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Length of the fixed part of the header.
pub(crate) const FIXED_BYTES: usize = 256;
/// Offset of the part of the header that changes.
pub(crate) const LIVE_OFFSET: usize = FIXED_BYTES;
/// Offset of [`Live::state`].
pub(crate) const STATE_OFFSET: u64 = LIVE_OFFSET as u64;
/// Length of a group.
pub(crate) const GROUP_BYTES: usize = 128;
/// Length of a directory entry.
pub(crate) const ENTRY_BYTES: usize = 320;
/// Longest name of a segment, a group or a node: Linux allows host names of 64 bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// Offset of the segment's own flag in the page of flags.
pub(crate) const FLAGS_SEGMENT_OFFSET: usize = 64;
/// Offset of the flag of entry 0 in the page of flags.
pub(crate) const FLAGS_ENTRIES_OFFSET: usize = 128;
/// Longest segment that a reader maps: 4 GiB, a million vertices. A greater length means a damaged header.
pub(crate) const MAX_FILE_BYTES: u64 = 4 << 30;
/// Most slots of a ring: 32 MiB. History belongs on disk.
pub const MAX_SLOTS: u32 = 1 << 20;
/// Longest byte ring.
pub(crate) const MAX_BYTE_RING_BYTES: u32 = 1 << 24;

/// [`Live::state`]: under construction.
pub(crate) const STATE_NEW: u32 = 0;
/// [`Live::state`]: complete; the publisher lives as long as it holds the lock.
pub(crate) const STATE_READY: u32 = 1;
/// [`Live::state`]: closed by its publisher.
pub(crate) const STATE_CLOSED: u32 = 2;

/// [`Entry::state`]: registered.
pub(crate) const ENTRY_REGISTERED: u32 = 1;

/// The part of the header that changes while the segment lives.
#[repr(C, align(8))]
pub(crate) struct Live {
    pub(crate) state: AtomicU32,
    pub(crate) epoch: AtomicU32,
    pub(crate) directory_version: AtomicU64,
    pub(crate) directory_len: AtomicU32,
    pub(crate) groups_len: AtomicU32,
    pub(crate) heap_used: AtomicU64,
    pub(crate) heartbeat_at: AtomicI64,
    pub(crate) heartbeat_boottime: AtomicU64,
    pub(crate) clock_steps: AtomicU64,
}

#[repr(C, align(128))]
pub(crate) struct Group {
    pub(crate) tick_time: AtomicI64,
    pub(crate) ticks: AtomicU64,
    pub(crate) name_len: AtomicU32,
    pub(crate) name: [AtomicU32; MAX_NAME_BYTES / 4],
}

#[repr(C, align(64))]
pub(crate) struct Entry {
    pub(crate) version: AtomicU32,
    pub(crate) state: AtomicU32,
    pub(crate) vertex_offset: AtomicU64,
    pub(crate) slots: AtomicU32,
    pub(crate) byte_ring_bytes: AtomicU32,
    /// `value_type`, `kind`, `unit_len`, `topic_len`, from the lowest byte up.
    pub(crate) traits: AtomicU32,
    pub(crate) group: AtomicU32,
    pub(crate) unit: [AtomicU64; 2],
    pub(crate) topic: [AtomicU64; 32],
    pub(crate) registered_at: AtomicI64,
}

/// The marks of a vertex, a byte each, so that a reader sets one by a plain store: it need not fetch the cache
/// line first.
#[repr(C, align(4))]
#[derive(Debug)]
pub(crate) struct Marks {
    /// 1 if a reader read the vertex.
    pub(crate) read: AtomicU8,
    /// 1 if a reader follows it and needs each change at once.
    pub(crate) followed: AtomicU8,
    reserved: [AtomicU8; 2],
}

impl Marks {
    /// Returns true if a mark is set.
    #[inline]
    pub(crate) fn are_set(&self) -> bool {
        self.read.load(Ordering::Relaxed) | self.followed.load(Ordering::Relaxed) != 0
    }
}

#[cfg(not(loom))]
const _: () = {
    use crate::ring::{Slot, VertexHead};
    use std::mem::{offset_of, size_of};
    assert!(LIVE_OFFSET + offset_of!(Live, clock_steps) == 304);
    assert!(size_of::<Group>() == GROUP_BYTES);
    assert!(size_of::<Entry>() == ENTRY_BYTES);
    assert!(offset_of!(Entry, topic) == 48);
    assert!(offset_of!(Entry, registered_at) == 304);
    assert!(size_of::<VertexHead>() == 64);
    assert!(offset_of!(VertexHead, bytes_reserved) == 32);
    assert!(offset_of!(VertexHead, checked_boottime) == 48);
    assert!(offset_of!(VertexHead, interest) == 56);
    assert!(size_of::<Slot>() == 32);
    assert!(size_of::<Marks>() == 4);
};
