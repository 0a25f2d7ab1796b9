//! The segment of a recorder, byte by byte: layout version 1.
//!
//! A recorder writes the calls of one process. Its segment is the file `NAME-PID.rpc` in a runtime directory, beside the
//! `.seg` files: the same owner, permissions, lock and rules of life (see [`crate::layout`]). Only its process writes it. All
//! numbers are little-endian; offsets are in bytes from the start of the file. Unlisted bytes are reserved and zero.
//!
//! The file is sparse. The regions are, in this order: header, heads of the rings, definitions, slots of the rings.
//!
//! **Header**, 4096 bytes at offset 0:
//!
//! | offset | type | name | meaning |
//! |---:|---|---|---|
//! | 0 | u8×8 | `magic` | `SKOPOSRP` |
//! | 8 | u32 | `layout_version` | 1; a reader refuses a version that it does not know |
//! | 12 | u32 | `header_bytes` | 4096 |
//! | 16 | u64 | `file_bytes` | length of the file |
//! | 24 | u32 | `rings` | number of rings, 1 to 1024 |
//! | 28 | u32 | `ring_records` | slots of each ring, a power of two from 64 to 65,536 |
//! | 32 | u64 | `definitions_offset` | start of the definitions |
//! | 40 | u64 | `definitions_bytes` | length of the region |
//! | 48 | u64 | `slots_offset` | start of the slots of ring 0; ring i starts `i * ring_records * 64` later |
//! | 64 | u8×16 | `boot_id` | `/proc/sys/kernel/random/boot_id` as bytes |
//! | 80 | u32 | `pid` | process id, in its own namespace |
//! | 84 | u32 | `uid` | its effective user id |
//! | 88 | u64 | `pid_start_ticks` | field 22 of its `/proc/PID/stat` |
//! | 96 | i64 | `created_at` | UNIX time, ns |
//! | 104 | u32 | `name_len` | length of `name` |
//! | 108 | u32 | `node_len` | length of `node` |
//! | 112 | u8×64 | `name` | name of the service, ASCII |
//! | 176 | u8×64 | `node` | name of the node, ASCII |
//! | 240 | u32 | `drains_itself` | 1: the process writes its records to a trace by itself; others drain it only after its end |
//! | 248 | u64 | `pid_namespace` | inode of `/proc/self/ns/pid`; 0 if not known |
//! | 256 | u32 | `state` | 0 under construction, 1 ready, 2 closed |
//! | 260 | u32 | `stage` | 0 off, 1 context only, 2 spans, 3 spans with details |
//! | 264 | u64 | `definitions_used` | bytes of the definitions that are complete |
//! | 272 | u32 | `clock_version` | even: the four clock fields are stable; odd: being changed |
//! | 276 | u32 | `rings_used` | number of rings that ever had a writer |
//! | 280 | u64 | `clock_ticks` | a moment in ticks |
//! | 288 | i64 | `clock_unix_ns` | UNIX time at that moment, ns |
//! | 296 | f64 | `clock_ns_per_tick` | length of a tick |
//! | 304 | u64 | `clock_error_ns` | bound on the error of `clock_unix_ns` |
//! | 312 | u64 | `heartbeat_boottime` | last sign of life on `CLOCK_BOOTTIME`, ns |
//! | 320 | u64×16 | `counters` | see [`Counter`]: counter i lies at `320 + 8 i` |
//!
//! **Head of a ring**, 128 bytes each, from offset 4096:
//!
//! | offset | type | name | meaning |
//! |---:|---|---|---|
//! | 0 | u64 | `head` | records ever written; only the ring's writer stores it |
//! | 8 | u32 | `thread` | id of the thread that writes it now or wrote it last |
//! | 12 | u32 | `claims` | number of threads that ever wrote it |
//! | 16 | u64 | `reserved` | records ever written or being written |
//! | 64 | u64 | `drained` | records that the process itself has drained |
//!
//! **Slots**: record `t` of a ring lies in slot `t mod ring_records`, eight words of 64 bits. `skopos_rpc::record` has their
//! meaning.
//!
//! **To write records** `t` to `u - 1`, which belong together: store `u` to `reserved`; a release fence; relaxed stores into the
//! slots; store `u` to `head` with release ordering.
//!
//! **To drain** from record `t` on: read `head` with acquire ordering; copy the records from `t` to `head` by relaxed loads; an
//! acquire fence; read `reserved`. A record `r` is whole if `r + ring_records >= reserved`; the others, which come first,
//! were overwritten and are lost. A reader writes nothing. A ring that is not drained holds the last `ring_records`
//! records, also after its process was killed.
//!
//! **Definition**, in the region of definitions, one behind the other up to `definitions_used`, each at a multiple of 8:
//!
//! | offset | type | name | meaning |
//! |---:|---|---|---|
//! | 0 | u32 | `kind` | kind of frame of a trace file; 256 is the path of the folder of the trace |
//! | 4 | u32 | `length` | length of the payload |
//! | 8 | | payload | that of the frame |

use crate::sync::{AtomicU32, AtomicU64};

/// First bytes of a recorder's segment.
pub const RECORDS_MAGIC: [u8; 8] = *b"SKOPOSRP";
/// The version of this layout.
pub const RECORDS_VERSION: u32 = 1;
/// Ending of the file's name.
pub const RECORDS_ENDING: &str = "rpc";
/// Kind of the definition that has the path of the trace's folder.
pub const FOLDER_DEFINITION: u32 = 256;
/// Most rings: a thread each; ten times the threads of a busy service.
pub const MAX_RINGS: u32 = 1024;
/// Fewest slots of a ring: below it a drain could not keep up with a burst of one request.
pub const MIN_RING_RECORDS: u32 = 64;
/// Most slots of a ring: 4 MiB. History belongs into a trace.
pub const MAX_RING_RECORDS: u32 = 65_536;
/// Length of the definitions: 65,536 callpath nodes with names of a hundred bytes, and the other names.
pub const DEFINITIONS_BYTES: u64 = 16 << 20;
/// Longest payload of a definition: the configuration of a process.
pub const MAX_DEFINITION_BYTES: usize = 256 << 10;
/// Longest name of a service: the name of the file has the process id behind it.
pub const MAX_SERVICE_NAME_BYTES: usize = 48;

/// Number of counters in the header.
pub(crate) const COUNTERS: usize = 16;
/// Offset of the heads of the rings.
pub(crate) const HEADS_OFFSET: u64 = 4096;
/// Length of the head of a ring.
pub(crate) const RING_HEAD_BYTES: u64 = 128;
/// Length of a slot.
pub(crate) const SLOT_BYTES: u64 = 64;
/// Offset of the part of the header that changes.
pub(crate) const RECORDS_LIVE_OFFSET: u64 = 256;

/// A counter in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Records for which a thread had no ring.
    WithoutRing = 0,
    /// Records that were overwritten before the process drained them.
    Overwritten = 1,
    /// Records that were deleted with old parts of the trace, or that no disk took.
    Deleted = 2,
    /// Refusals of a callpath node.
    NodesRefused = 3,
    /// Names of calls that were one too many.
    NamesRefused = 4,
    /// Names of peers that were one too many.
    PeersRefused = 5,
    /// Values for which a span had no room.
    ValuesRefused = 6,
    /// Steps by which the budget of overhead switched something off.
    BudgetSteps = 7,
    /// Stage that the user asked for.
    StageWanted = 8,
    /// Time of the recorder so far in ns of a core.
    OverheadNs = 9,
    /// Definitions for which there was no room.
    DefinitionsRefused = 10,
    /// Lamport clocks of other processes that were too far ahead to be taken as they were.
    ClocksBounded = 11,
    /// Contexts of a newer version, read as far as they are known.
    NewerContexts = 12,
    /// Records in segments of dead processes that the recorder removed at its start. A drain may have had some of them.
    RemovedDead = 13,
    /// Variables whose source failed and is not called any more.
    SourcesFailed = 14,
}

/// The part of the header that changes while the segment lives.
#[repr(C, align(64))]
pub(crate) struct RecordsLive {
    pub(crate) state: AtomicU32,
    pub(crate) stage: AtomicU32,
    pub(crate) definitions_used: AtomicU64,
    pub(crate) clock_version: AtomicU32,
    pub(crate) rings_used: AtomicU32,
    pub(crate) clock_ticks: AtomicU64,
    pub(crate) clock_unix_ns: AtomicU64,
    pub(crate) clock_ns_per_tick: AtomicU64,
    pub(crate) clock_error_ns: AtomicU64,
    pub(crate) heartbeat_boottime: AtomicU64,
    pub(crate) counters: [AtomicU64; COUNTERS],
}

/// The head of a ring. Writer and drainer have a cache line each.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct RingHead {
    pub(crate) head: AtomicU64,
    pub(crate) thread: AtomicU32,
    pub(crate) claims: AtomicU32,
    pub(crate) reserved: AtomicU64,
    pub(crate) unused: [AtomicU64; 5],
    pub(crate) drained: AtomicU64,
    pub(crate) unused_2: [AtomicU64; 7],
}

/// One record: a cache line.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct RecordSlot(pub(crate) [AtomicU64; 8]);

#[cfg(not(loom))]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(RECORDS_LIVE_OFFSET as usize + offset_of!(RecordsLive, counters) == 320);
    assert!(size_of::<RingHead>() == RING_HEAD_BYTES as usize);
    assert!(offset_of!(RingHead, reserved) == 16);
    assert!(offset_of!(RingHead, drained) == 64);
    assert!(size_of::<RecordSlot>() == SLOT_BYTES as usize);
};
