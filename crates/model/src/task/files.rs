//! What a task did with each file and each peer: `files.json`.

use serde::{Deserialize, Serialize};

use super::Completeness;

/// The version of this format: raised when a field changes its meaning or goes.
pub const FILES_VERSION: u32 = 1;

/// The most files, peers and processes that are listed: those with most bytes. Of the others the sums
/// are there.
pub const MAX_FILES_LISTED: usize = 1000;

/// All files of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// [`FILES_VERSION`].
    pub version: u32,
    /// The mechanism that counted.
    pub method: String,
    /// What of the task it covers.
    pub completeness: Completeness,
    /// What is not in it.
    pub reason: String,
    /// Fields of files and processes that this mechanism does not count: their zeros mean nothing.
    #[serde(default)]
    pub not_counted: Vec<String>,
    /// Bytes that it counted, by the kernel's rule: reads and writes of files, pipes and sockets.
    pub read_bytes: u64,
    /// Likewise.
    pub written_bytes: u64,
    /// Bytes that the kernel counted and no file explains; `null` if the kernel's count is unknown.
    /// Below zero two processes shared a descriptor that each moved.
    pub unattributed_read_bytes: Option<i64>,
    /// Likewise.
    pub unattributed_written_bytes: Option<i64>,
    /// Distinct files that were opened or used; a file with several names is one.
    pub files_total: u64,
    /// Those with most bytes, the greatest first.
    pub files: Vec<FileUse>,
    /// Files that are not in that list.
    pub files_left_out: u64,
    /// Their sums.
    pub left_out: FileUse,
    /// Addresses that it talked to, those with most bytes first.
    pub peers: Vec<PeerUse>,
    /// Peers that are not in that list.
    pub peers_left_out: u64,
    /// Processes that counted, those with most bytes first.
    pub processes: Vec<ProcessFiles>,
    /// Processes that are not in that list.
    pub processes_left_out: u64,
    /// Processes that ended and had not counted: static programs, those with privileges of their own
    /// or a cleared environment.
    pub processes_not_seen: u64,
    /// The commands of some of them.
    pub not_seen: Vec<NotSeen>,
}

/// What was done with one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUse {
    /// The name by which it was first opened, absolute; empty if it has none or none is known.
    pub path: String,
    /// `file`; `pipes`, `sockets` and `nameless` stand for all of theirs, `others` for files that
    /// found no place in the table.
    pub kind: String,
    /// The device that it is on, as `stat` has it.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// How often it was opened.
    pub opens: u64,
    /// How often a descriptor of it was closed.
    pub closes: u64,
    /// Reading operations, those of stdio left out.
    pub reads: u64,
    /// Writing operations, those of stdio left out.
    pub writes: u64,
    /// Bytes that were read, those of stdio included.
    pub read_bytes: u64,
    /// Bytes that were written, those of stdio included.
    pub written_bytes: u64,
    /// Bytes that were read or written, of a file that was open for both: its position does not tell
    /// which. Only `seccomp` has such, and only if the kernel's counts do not tell either.
    #[serde(default)]
    pub read_or_written_bytes: u64,
    /// Bytes of these that stdio read, from the position of the descriptor.
    pub stream_read_bytes: u64,
    /// Bytes of these that stdio wrote.
    pub stream_written_bytes: u64,
    /// How many reads were of 0 bytes, 1, 2 to 3, 4 to 7 … the last ones from 4 MiB on.
    pub read_sizes: Vec<u64>,
    /// Likewise of writes.
    pub write_sizes: Vec<u64>,
    /// How often it was mapped into memory. What was read and written there is counted nowhere here.
    pub maps: u64,
    /// Bytes that the mappings spanned: what may have been read or written at least once, uncounted.
    pub mapped_bytes: u64,
}

/// What was said to and heard from one address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerUse {
    /// IPv4 or IPv6; `unix`; `others` for all that found no place in the table or were not known.
    pub address: String,
    /// Its port; 0 for one that connected to the task.
    pub port: u16,
    /// Connections that were begun by either side.
    pub connections: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Bytes that came.
    pub received_bytes: u64,
    /// Operations that sent.
    pub sends: u64,
    /// Operations that received.
    pub receives: u64,
}

/// What one process counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFiles {
    /// Its process id.
    pub pid: i32,
    /// Its command line.
    pub command: String,
    /// Files that it opened.
    pub opens: u64,
    /// Reading operations, those of stdio left out.
    pub reads: u64,
    /// Writing operations, those of stdio left out.
    pub writes: u64,
    /// Bytes that it read.
    pub read_bytes: u64,
    /// Bytes that it wrote.
    pub written_bytes: u64,
}

/// Processes that had not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotSeen {
    /// Their command line.
    pub command: String,
    /// How many there were.
    pub processes: u64,
}

impl FileUse {
    /// True if anything was done with it.
    pub fn is_used(&self) -> bool {
        self.opens + self.closes + self.reads + self.writes + self.maps > 0
            || self.read_bytes + self.written_bytes + self.read_or_written_bytes > 0
    }

    /// Adds what was done with another.
    pub fn add(&mut self, other: &Self) {
        self.opens += other.opens;
        self.closes += other.closes;
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.read_or_written_bytes += other.read_or_written_bytes;
        self.stream_read_bytes += other.stream_read_bytes;
        self.stream_written_bytes += other.stream_written_bytes;
        self.maps += other.maps;
        self.mapped_bytes += other.mapped_bytes;
        let add = |sum: &mut Vec<u64>, more: &[u64]| {
            sum.resize(sum.len().max(more.len()), 0);
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        };
        add(&mut self.read_sizes, &other.read_sizes);
        add(&mut self.write_sizes, &other.write_sizes);
    }
}

impl PeerUse {
    /// Adds what was counted of the same address.
    pub fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.sends += other.sends;
        self.receives += other.receives;
    }
}
