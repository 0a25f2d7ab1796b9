//! The use of each file and each peer by a task: `files.json`.

use serde::{Deserialize, Serialize};

use super::summary::Completeness;

/// The version of this format: raised when a field changes its meaning or is removed.
pub const FILES_VERSION: u32 = 1;

/// The most files, peers and processes that are listed: the ones with the most bytes. The report has the
/// sums of the others.
pub const MAX_FILES_LISTED: usize = 1000;

/// All files of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// [`FILES_VERSION`].
    pub version: u32,
    /// The mechanism that counted.
    pub method: String,
    /// The part of the task that it covers.
    pub completeness: Completeness,
    /// The reason why something is missing.
    pub reason: String,
    /// Fields of files and processes that this mechanism does not count: ignore their zeros.
    #[serde(default)]
    pub not_counted: Vec<String>,
    /// Bytes read, counted by the kernel's rule: reads of files, pipes and sockets.
    pub read_bytes: u64,
    /// Bytes written, counted by the same rule.
    pub written_bytes: u64,
    /// Bytes read that the kernel counted and no file explains; `null` if the kernel's count is
    /// unknown. Negative if two processes moved the position of one shared descriptor.
    pub unattributed_read_bytes: Option<i64>,
    /// The same of bytes written.
    pub unattributed_written_bytes: Option<i64>,
    /// Number of distinct files that were opened or used; a file with several names counts once.
    pub files_total: u64,
    /// The files with the most bytes, the greatest first.
    pub files: Vec<FileUse>,
    /// Number of files that are not listed.
    pub files_left_out: u64,
    /// The sums of the files that are not listed.
    pub left_out: FileUse,
    /// Addresses that the task talked to, in descending order of bytes.
    pub peers: Vec<PeerUse>,
    /// Number of peers that are not listed.
    pub peers_left_out: u64,
    /// Processes that counted, in descending order of bytes.
    pub processes: Vec<ProcessFiles>,
    /// Number of processes that are not listed.
    pub processes_left_out: u64,
    /// Number of processes that ended without a count: static programs, and programs with privileges of
    /// their own or a cleared environment.
    pub processes_not_seen: u64,
    /// The commands of some of these processes.
    pub not_seen: Vec<NotSeen>,
}

/// The use of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUse {
    /// The absolute path by which it was first opened; empty if the file has no path or it is unknown.
    pub path: String,
    /// `file` for one file; `pipes`, `sockets` and `nameless` for the sum of their kind, `others` for the
    /// sum of files that did not fit in the table.
    pub kind: String,
    /// The device number, as returned by `stat`.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
    /// Number of times that it was opened.
    pub opens: u64,
    /// Number of times that a descriptor of it was closed.
    pub closes: u64,
    /// Number of reading operations without those of stdio.
    pub reads: u64,
    /// Number of writing operations without those of stdio.
    pub writes: u64,
    /// Bytes read, including those of stdio.
    pub read_bytes: u64,
    /// Bytes written, including those of stdio.
    pub written_bytes: u64,
    /// Bytes read or written through a descriptor that was open for both: its position does not tell
    /// them apart. Only `seccomp` reports these, and only if the kernel's counts do not tell either.
    #[serde(default)]
    pub read_or_written_bytes: u64,
    /// Bytes that stdio read, from the position of the descriptor; part of `read_bytes`.
    pub stream_read_bytes: u64,
    /// Bytes that stdio wrote; part of `written_bytes`.
    pub stream_written_bytes: u64,
    /// Number of reads of 0 bytes, 1, 2 to 3, 4 to 7 … The last number is of reads from 4 MiB on.
    pub read_sizes: Vec<u64>,
    /// The same of writes.
    pub write_sizes: Vec<u64>,
    /// Number of times that it was mapped into memory. Reads and writes of mappings are not counted.
    pub maps: u64,
    /// Bytes that the mappings spanned, any of which may have been read or written.
    pub mapped_bytes: u64,
}

/// The traffic with one address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerUse {
    /// An IPv4 or IPv6 address; `unix`; `others` for the sum of addresses that did not fit in the table or
    /// were unknown.
    pub address: String,
    /// The port; 0 for a peer that connected to the task.
    pub port: u16,
    /// Number of connections that either side opened.
    pub connections: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Number of sending operations.
    pub sends: u64,
    /// Number of receiving operations.
    pub receives: u64,
}

/// The counts of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFiles {
    /// The process id.
    pub pid: i32,
    /// The command line.
    pub command: String,
    /// Number of files opened.
    pub opens: u64,
    /// Number of reading operations without those of stdio.
    pub reads: u64,
    /// Number of writing operations without those of stdio.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// Processes of one command that did not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotSeen {
    /// The command line.
    pub command: String,
    /// Number of processes.
    pub processes: u64,
}

impl FileUse {
    /// Returns true if the file was used at all.
    pub fn is_used(&self) -> bool {
        self.opens + self.closes + self.reads + self.writes + self.maps > 0
            || self.read_bytes + self.written_bytes + self.read_or_written_bytes > 0
    }

    /// Adds the use of another file.
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
    /// Adds other traffic with the same address.
    pub fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.sends += other.sends;
        self.receives += other.receives;
    }
}
