//! The trace file: `NAME-PID-STARTTICKS.sktrace`, and further parts `NAME-PID-STARTTICKS.N.sktrace` of the same process.
//!
//! Each part stands alone: it begins with a process frame and has the clock and all definitions that its records need. A
//! part is a sequence of frames; numbers are little-endian:
//!
//! | offset | type | name |
//! |--:|--|--|
//! | 0 | u32 | magic, `SKTF` |
//! | 4 | u32 | kind |
//! | 8 | u32 | length of the payload, at most 16 MiB |
//! | 12 | u32 | CRC-32 (IEEE) of kind, length and payload |
//! | 16 | | payload |
//!
//! | kind | payload |
//! |--:|--|
//! | 1 process | JSON, [`Process`]. The first frame; it comes again when the configuration changes |
//! | 2 clock | ticks u64, unix_ns i64, ns_per_tick f64, error_ns u64. Holds for the records from here on |
//! | 3 node | id u32, parent hash u64, hash u64, length u16, name |
//! | 4 peer | id u16, length u16, name |
//! | 5 pvar | number u16, class u8, binding u8, length u16, name, length u16, unit |
//! | 6 records | thread u32, records lost before u64, then n × 64 bytes |
//! | 7 end | reason u8: 1 closed, 2 recovered after the process died |
//! | 8 counters | JSON, [`Counters`]: all that the recorder left out so far, and its own cost |
//!
//! A span and the records of its details are in one frame. After a loss the details of a lost span can come first; they
//! belong to no span.
//!
//! A reader passes over kinds that it does not know. A file whose process was killed ends in the middle of a frame: the
//! reader returns the frames before the tear and counts the bytes behind it.

mod read;
mod write;

pub use read::{Frame, Frames, Records, Tear};
pub use write::TraceWriter;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::pvar::PvarInfo;

/// First bytes of each frame.
pub const FRAME_MAGIC: [u8; 4] = *b"SKTF";
/// Length of the head of a frame.
pub const FRAME_HEAD_BYTES: usize = 16;
/// Longest payload: a quarter of a million records. A greater length means a damaged file.
pub const MAX_PAYLOAD_BYTES: usize = 16 << 20;
/// Ending of a trace file's name.
pub const TRACE_ENDING: &str = "sktrace";
/// Version of the trace format.
pub const TRACE_VERSION: u32 = 1;
/// Longest name of a call or a peer in bytes. Longer names are cut at a character.
pub const MAX_NAME_BYTES: usize = 255;

/// Kinds of frames.
pub(crate) mod kind {
    pub(crate) const PROCESS: u32 = 1;
    pub(crate) const CLOCK: u32 = 2;
    pub(crate) const NODE: u32 = 3;
    pub(crate) const PEER: u32 = 4;
    pub(crate) const PVAR: u32 = 5;
    pub(crate) const RECORDS: u32 = 6;
    pub(crate) const END: u32 = 7;
    pub(crate) const COUNTERS: u32 = 8;
}

/// The process of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Version of the format; see [`TRACE_VERSION`].
    pub version: u32,
    /// Name of the service.
    pub name: String,
    /// Process id in its own namespace.
    pub pid: u32,
    /// Field 22 of its `/proc/PID/stat`.
    pub start_ticks: u64,
    /// Name of the node; empty if not set.
    pub node: String,
    /// The boot of the machine, 32 hexadecimal digits.
    pub boot_id: String,
    /// Configuration of the service, for comparisons of runs.
    pub config: BTreeMap<String, String>,
    /// RPC library and its version.
    pub host: String,
    /// Names of the intervals that the host sees.
    pub intervals: Vec<String>,
    /// Intervals that the host cannot see, with the reason.
    pub unseen: BTreeMap<String, String>,
    /// Variables whose source failed, with the reason. They have no values from then on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_variables: BTreeMap<String, String>,
}

/// A moment on the clock of a process and on that of the world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockPoint {
    /// Ticks.
    pub ticks: u64,
    /// UNIX time in ns at that tick.
    pub unix_ns: i64,
    /// Length of a tick in ns.
    pub ns_per_tick: f64,
    /// Bound on the error of `unix_ns` against the machine's clock, in ns.
    pub error_ns: u64,
}

impl ClockPoint {
    /// Returns the UNIX time of `ticks` in ns.
    #[inline]
    pub fn unix_ns(&self, ticks: u64) -> i64 {
        let distance = ticks.wrapping_sub(self.ticks).cast_signed();
        self.unix_ns.saturating_add((distance as f64 * self.ns_per_tick) as i64)
    }

    /// Returns a duration of `ticks` in ns.
    #[inline]
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }
}

/// A callpath node of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number in records of this process.
    pub id: u32,
    /// Hash of the path above.
    pub parent_hash: u64,
    /// Hash of this path.
    pub hash: u64,
    /// Name of the call.
    pub name: String,
}

/// The name of another entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Number in records of this process.
    pub id: u16,
    /// Name, such as an address.
    pub name: String,
}

/// All that a recorder left out so far, and its own cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Records for which a thread had no ring.
    pub without_ring: u64,
    /// Records that were overwritten before they were drained.
    pub overwritten: u64,
    /// Records that were deleted with the oldest parts of the trace, or that no disk took.
    pub deleted: u64,
    /// Callpaths that were one too many, and count as `other`. A thread that met others in between asks again.
    pub nodes_refused: u64,
    /// Names of calls that were one too many, and count as `other`.
    pub names_refused: u64,
    /// Names of peers that were one too many.
    pub peers_refused: u64,
    /// Values for which a span had no room.
    pub values_refused: u64,
    /// Definitions for which shared memory had no room.
    pub definitions_refused: u64,
    /// Lamport clocks of other processes that were too far ahead to be taken as they were.
    pub clocks_bounded: u64,
    /// Contexts of a newer version, read as far as they are known.
    pub newer_contexts: u64,
    /// Records in segments of dead processes that the recorder removed at its start; an agent may have written some of them.
    pub removed_dead: u64,
    /// Variables whose source failed and is not called any more; [`Process::failed_variables`] has the reasons.
    pub sources_failed: u64,
    /// Number of times that the budget of overhead switched something off.
    pub budget_steps: u64,
    /// Stage of recording: 0 off, 1 context, 2 spans, 3 full.
    pub stage: u32,
    /// Stage that the user asked for.
    pub stage_wanted: u32,
    /// Time of the recorder so far in ns of a core: that of the callers is estimated, that of its own thread measured.
    pub overhead_ns: u64,
}

/// The end of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process closed it.
    Closed,
    /// The process died, and another one wrote what it had left in shared memory.
    Recovered,
    /// A reason of a newer version.
    Other(u8),
}

impl End {
    /// Returns the number of the reason.
    pub const fn code(self) -> u8 {
        match self {
            Self::Closed => 1,
            Self::Recovered => 2,
            Self::Other(code) => code,
        }
    }

    /// Returns the reason of a number.
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Closed,
            2 => Self::Recovered,
            code => Self::Other(code),
        }
    }
}

/// A name that other records refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// A callpath node.
    Node(Node),
    /// A peer.
    Peer(Peer),
    /// A variable.
    Pvar(PvarInfo),
}
