//! The usage of each file and each peer, as `bpf/files.h` counts it in words of 64 bits.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use skopos_model::task::{Completeness, FileUse, Files, PeerUse, ProcessFiles};

use super::record::OwnCounts;
use super::totals::Totals;
use crate::ledger::{Ledger, Offer};
use crate::mechanism::files::{self, KINDS, Processes, trim_zeros};
use crate::mechanism::reasons::append_counts;
use crate::sys::Pid;

/// Number of rows of files, including those of [`KINDS`].
pub(super) const MAX_FILES: u32 = 16_384;
const SIZES: usize = 24;
pub(super) const FILE_WORDS: usize = 8 + 2 * SIZES;
pub(super) const PEER_KEY: usize = 20;
pub(super) const PEER_WORDS: usize = 5;
pub(super) const CALLS_WORDS: usize = 10;

/// Fields that a returning system call does not show.
const NOT_COUNTED: [&str; 3] = ["closes", "stream_read_bytes", "stream_written_bytes"];

/// The kernel's counts.
pub(super) struct Tables {
    pub(super) files: Vec<[u64; FILE_WORDS]>,
    pub(super) peers: Vec<([u8; PEER_KEY], [u64; PEER_WORDS])>,
    pub(super) calls: [u64; CALLS_WORDS],
}

/// The note on sums of bytes that include those which the kernel's own sums lack.
pub(super) const WITH_UNCOUNTED: &str = "includes bytes moved by splice and io_uring; bytes moved by recv and send are counted in \
     received_bytes and sent_bytes, input and output by mmap in device_read_bytes and \
     device_written_bytes only";

impl Tables {
    /// Adds the bytes of calls that the kernel does not count to its sums. The result is at least
    /// the sum over all files, which includes processes that are still running.
    pub(super) fn with_uncounted(&self, kernel: [u64; 2], files: Option<&Files>) -> [u64; 2] {
        let by_file = files.map_or([0, 0], |files| [files.read_bytes, files.written_bytes]);
        let [_, _, read, written, ..] = self.calls;
        [(kernel[0] + read).max(by_file[0]), (kernel[1] + written).max(by_file[1])]
    }
}

/// Names that arrive through the ring.
#[derive(Default)]
pub(super) struct Names {
    paths: HashMap<u32, String>,
    processes: Processes,
}

impl Names {
    /// Sets the path of a file, given from its end.
    pub(super) fn set_path(&mut self, row: u32, names: &[u8]) {
        if row < MAX_FILES {
            self.paths.insert(row, path(names));
        }
    }

    /// Adds the counts of an exited process.
    pub(super) fn process_exited(&mut self, pid: Pid, command: &str, own: OwnCounts) {
        self.processes.push(ProcessFiles {
            pid,
            command: command.to_owned(),
            opens: own.opens,
            reads: own.reads,
            writes: own.writes,
            read_bytes: own.read,
            written_bytes: own.written,
        });
    }
}

/// Returns the path of "name\0folder\0".
fn path(names: &[u8]) -> String {
    let mut path = String::new();
    for part in names.split(|b| *b == 0).filter(|part| !part.is_empty()).rev() {
        path.push('/');
        path += &String::from_utf8_lossy(part);
    }
    path
}

fn file_use(row: usize, words: &[u64; FILE_WORDS], names: &Names) -> FileUse {
    let sizes = |at: usize| trim_zeros(words[at..at + SIZES].to_vec());
    let (read_sizes, write_sizes) = (sizes(8), sizes(8 + SIZES));
    // The kernel's internal dev_t is converted to that of `stat`.
    let device = rustix::fs::makedev((words[1] >> 20) as u32, (words[1] & 0xf_ffff) as u32);
    FileUse {
        path: names.paths.get(&(row as u32)).cloned().unwrap_or_default(),
        kind: KINDS.get(row).copied().unwrap_or("file").to_owned(),
        device: if words[0] == 0 { 0 } else { device },
        inode: words[2],
        opens: words[3],
        reads: read_sizes.iter().sum(),
        writes: write_sizes.iter().sum(),
        read_bytes: words[6],
        written_bytes: words[7],
        read_sizes,
        write_sizes,
        maps: words[4],
        mapped_bytes: words[5],
        ..FileUse::default()
    }
}

fn peer_use(key: &[u8; PEER_KEY], words: &[u64; PEER_WORDS]) -> PeerUse {
    let [connections, sent_bytes, received_bytes, sends, receives] = *words;
    let half = |at: usize| [key[at], key[at + 1]];
    let mut address = [0; 16];
    address.copy_from_slice(&key[4..]);
    let is_known = address != [0; 16];
    let name = match i32::from(u16::from_ne_bytes(half(0))) {
        libc::AF_INET if is_known => IpAddr::from([key[4], key[5], key[6], key[7]]).to_string(),
        libc::AF_INET6 if is_known => Ipv6Addr::from(address).to_string(),
        libc::AF_UNIX => "unix".to_owned(),
        // One socket for many peers, which each call names.
        _ => "others".to_owned(),
    };
    let port = u16::from_be_bytes(half(2));
    PeerUse { address: name, port, connections, sent_bytes, received_bytes, sends, receives }
}

/// Makes the report of files, and offers its sums.
pub(super) fn report(
    method: &'static str,
    mut names: Names,
    tables: &Tables,
    totals: &Totals,
    ledger: &mut Ledger,
) {
    let [_, overflowed, other_read, other_written, .., sent, received, _] = tables.calls;
    let rows = tables.files.iter().enumerate();
    let all = rows.map(|(row, words)| file_use(row, words, &names));
    let used: Vec<FileUse> = all.filter(FileUse::is_used).collect();
    let peers = tables.peers.iter().map(|(key, words)| peer_use(key, words)).collect();
    let listed = files::listed(method, used, peers, std::mem::take(&mut names.processes));
    let living = ledger.live_pids().len();
    let beyond = |kernel: u64, counted: u64, other: u64| {
        (living == 0).then(|| kernel.cast_signed() - (counted - other).cast_signed())
    };
    let has_all = overflowed == 0 && totals.unknown == 0 && living == 0 && tables.calls[5] == 0;
    let completeness = if has_all { Completeness::All } else { Completeness::AtLeast };
    for (name, value, is_all) in [
        ("opened_files", listed.files_total, has_all),
        ("sent_bytes", sent, has_all && tables.calls[6] == 0),
        ("received_bytes", received, has_all && tables.calls[6] == 0),
    ] {
        let completeness = if is_all { completeness } else { Completeness::AtLeast };
        let reason = (!is_all).then(|| missing(tables, totals));
        let (value, error_bound) = (value as f64, is_all.then_some(0.0));
        ledger.offers.add(name, Offer { method, value, completeness, error_bound, reason });
    }
    ledger.files = Some(Files {
        reason: missing(tables, totals),
        not_counted: NOT_COUNTED.map(str::to_owned).to_vec(),
        unattributed_read_bytes: beyond(totals.read_bytes, listed.read_bytes, other_read),
        unattributed_written_bytes: beyond(
            totals.written_bytes,
            listed.written_bytes,
            other_written,
        ),
        processes_not_seen: totals.unknown,
        ..listed
    });
}

/// Describes what is missing.
fn missing(tables: &Tables, totals: &Totals) -> String {
    let [_, overflowed, read, written, ring_calls, compat, batches, .., beyond] = tables.calls;
    let mut text =
        "excludes bytes moved through mappings: `maps` and `mapped_bytes` count the mappings"
            .to_owned();
    let counts = [
        (ring_calls, "operations of io_uring are included"),
        (
            read + written,
            "bytes of io_uring and splice are included that the kernel's own count lacks",
        ),
        (compat, "calls of 32-bit programs were not counted"),
        (batches, "calls sent or received several messages, whose bytes are unknown"),
        (overflowed, "opens exceeded the number of files that are counted separately"),
        (beyond, "operations exceeded the number of peers that are counted separately"),
        (totals.unknown, "processes exceeded the size of the table"),
        (totals.lost, "names of files or processes were lost"),
    ];
    append_counts(&mut text, &counts);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_given_from_its_end() {
        assert_eq!(path(b"c\0b\0a\0"), "/a/b/c");
        assert_eq!(path(b""), "");
    }

    #[test]
    fn the_family_decides_the_address_of_a_peer() {
        let mut key = [0; PEER_KEY];
        key[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        key[2..4].copy_from_slice(&80u16.to_be_bytes());
        assert_eq!(peer_use(&key, &[0; 5]).address, "others", "it is connected to none");
        key[4..8].copy_from_slice(&[127, 0, 0, 1]);
        let peer = peer_use(&key, &[1, 2, 3, 4, 5]);
        assert_eq!((peer.address.as_str(), peer.port, peer.sent_bytes), ("127.0.0.1", 80, 2));
        key[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
        assert_eq!(peer_use(&key, &[0; 5]).address, "unix");
    }
}
