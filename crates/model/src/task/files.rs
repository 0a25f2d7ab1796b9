//! The usage of each file and each peer by a task: `files.json`.

use serde::{Deserialize, Serialize};

use super::Completeness;

/// The version of this format, raised when a field changes its meaning or is removed.
pub const FILES_VERSION: u32 = 1;

/// The most files, peers and processes that are listed: those with the most bytes. The others are
/// summed up.
pub const MAX_FILES_LISTED: usize = 1000;

/// The usage of all files by a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// [`FILES_VERSION`].
    pub version: u32,
    /// The mechanism that counted.
    pub method: String,
    /// The part of the task that the counts cover.
    pub completeness: Completeness,
    /// Description of what is missing.
    pub reason: String,
    /// Fields of files and processes that this mechanism does not count: their zeros have no
    /// meaning.
    #[serde(default)]
    pub not_counted: Vec<String>,
    /// Bytes read, by the kernel's rule: reads of files, pipes and sockets.
    pub read_bytes: u64,
    /// Bytes written, by the same rule.
    pub written_bytes: u64,
    /// Bytes read that the kernel counted and no file explains; `null` if the kernel's count is
    /// unknown. It is negative if two processes moved one shared descriptor.
    pub unattributed_read_bytes: Option<i64>,
    /// The same for bytes written.
    pub unattributed_written_bytes: Option<i64>,
    /// Number of distinct files that were opened or used; a file with several names counts once.
    pub files_total: u64,
    /// The files with the most bytes, the greatest first.
    pub files: Vec<FileUse>,
    /// Number of files that are not in that list.
    pub files_left_out: u64,
    /// The sums over those files.
    pub left_out: FileUse,
    /// The peers of the task, those with the most bytes first.
    pub peers: Vec<PeerUse>,
    /// Number of peers that are not in that list.
    pub peers_left_out: u64,
    /// The processes whose accesses were counted, those with the most bytes first.
    pub processes: Vec<ProcessFiles>,
    /// Number of processes that are not in that list.
    pub processes_left_out: u64,
    /// Number of exited processes that were not counted: static programs, and those with privileges
    /// of their own or a cleared environment.
    pub processes_not_seen: u64,
    /// Commands of some of those processes.
    pub not_seen: Vec<NotSeen>,
}

/// The usage of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUse {
    /// The absolute path by which it was first opened; empty if it has none or it is unknown.
    pub path: String,
    /// `file`; `pipes`, `sockets` and `nameless` stand for all of that kind, `others` for files
    /// beyond the size of the table.
    pub kind: String,
    /// The device of the file, as `stat` reports it.
    pub device: u64,
    /// The inode of the file.
    pub inode: u64,
    /// Number of times that it was opened.
    pub opens: u64,
    /// Number of times that a descriptor of it was closed.
    pub closes: u64,
    /// Number of read operations, without those of stdio.
    pub reads: u64,
    /// Number of write operations, without those of stdio.
    pub writes: u64,
    /// Bytes that were read, including those by stdio.
    pub read_bytes: u64,
    /// Bytes that were written, including those by stdio.
    pub written_bytes: u64,
    /// Bytes that were read or written in a file that was open for both: its position does not show
    /// which. Only `seccomp` has such bytes, and only if the kernel's counts do not decide it.
    #[serde(default)]
    pub read_or_written_bytes: u64,
    /// The part of the bytes that stdio read, from the position of the descriptor.
    pub stream_read_bytes: u64,
    /// The part of the bytes that stdio wrote.
    pub stream_written_bytes: u64,
    /// Histogram of the sizes of reads: 0 bytes, 1, 2 to 3, 4 to 7, …; the last entry is from 4 MiB
    /// on.
    pub read_sizes: Vec<u64>,
    /// The same histogram for writes.
    pub write_sizes: Vec<u64>,
    /// Number of times that it was mapped into memory. Accesses through mappings are counted
    /// nowhere here.
    pub maps: u64,
    /// Bytes that the mappings spanned, which may have been read or written any number of times.
    pub mapped_bytes: u64,
}

/// The traffic with one peer address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerUse {
    /// An IPv4 or IPv6 address; `unix`; `others` for peers that are unknown or beyond the size of
    /// the table.
    pub address: String,
    /// The port of the peer; 0 for a peer that connected to the task.
    pub port: u16,
    /// Number of connections that either side began.
    pub connections: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Number of send operations.
    pub sends: u64,
    /// Number of receive operations.
    pub receives: u64,
}

/// The file usage of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFiles {
    /// The process id.
    pub pid: i32,
    /// The command line.
    pub command: String,
    /// Number of files that it opened.
    pub opens: u64,
    /// Number of read operations, without those of stdio.
    pub reads: u64,
    /// Number of write operations, without those of stdio.
    pub writes: u64,
    /// Bytes that it read.
    pub read_bytes: u64,
    /// Bytes that it wrote.
    pub written_bytes: u64,
}

/// Processes of one command that were not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotSeen {
    /// The command line.
    pub command: String,
    /// Number of processes.
    pub processes: u64,
}

impl FileUse {
    /// True if the file was used in any way.
    pub fn is_used(&self) -> bool {
        self.opens + self.closes + self.reads + self.writes + self.maps > 0
            || self.read_bytes + self.written_bytes + self.read_or_written_bytes > 0
    }

    /// Adds the usage of another file. Sums stay within their type.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.opens, other.opens),
            (&mut self.closes, other.closes),
            (&mut self.reads, other.reads),
            (&mut self.writes, other.writes),
            (&mut self.read_bytes, other.read_bytes),
            (&mut self.written_bytes, other.written_bytes),
            (&mut self.read_or_written_bytes, other.read_or_written_bytes),
            (&mut self.stream_read_bytes, other.stream_read_bytes),
            (&mut self.stream_written_bytes, other.stream_written_bytes),
            (&mut self.maps, other.maps),
            (&mut self.mapped_bytes, other.mapped_bytes),
        ];
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        sums.into_iter().for_each(|(sum, more)| add(sum, more));
        let add_sizes = |sizes: &mut Vec<u64>, more: &[u64]| {
            sizes.resize(sizes.len().max(more.len()), 0);
            sizes.iter_mut().zip(more).for_each(|(sum, more)| add(sum, *more));
        };
        add_sizes(&mut self.read_sizes, &other.read_sizes);
        add_sizes(&mut self.write_sizes, &other.write_sizes);
    }
}

impl PeerUse {
    /// Adds the traffic of the same address.
    pub fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.sends += other.sends;
        self.receives += other.receives;
    }
}
