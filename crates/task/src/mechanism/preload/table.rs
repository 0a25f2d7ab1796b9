//! The table in which the library counts, with the layout of `preload/table.h`. It is read as a
//! file; the processes map the same pages.
//!
//! | offset | content |
//! |---|---|
//! | 0 | magic, files, bytes of names, bytes sent, bytes received, processes that shared a slot, bytes read and bytes written that the kernel does not count |
//! | 512 | [`PROCESSES`] of 64 bytes, by process id |
//! | then | [`PEERS`] of 64 bytes |
//! | then | the index of files, which only the library needs |
//! | then | [`FILES`] of 512 bytes |
//! | then | their names |

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use skopos_model::task::{FileUse, PeerUse, ProcessFiles};

use super::library;
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::mechanism::files::{KINDS, trim_zeros};
use crate::sys::Pid;

const MAGIC: u64 = 0x3130_6b73_6574_6b73;
const HEADER: u64 = 512;
const PROCESSES: u64 = 8192;
const PEERS: u64 = 1024;
const FILES: u64 = 16_384;
const SLOTS: u64 = 4 * FILES;
const NAME_BYTES: u64 = 96 * FILES;
const SIZES: usize = 24;
const PROCESS: usize = 64;
const PEER: usize = 64;
const FILE: usize = 512;
const PEERS_AT: u64 = HEADER + PROCESSES * PROCESS as u64;
const FILES_AT: u64 = PEERS_AT + PEERS * PEER as u64 + SLOTS * 4;
const NAMES_AT: u64 = FILES_AT + FILES * FILE as u64;
const BYTES: u64 = NAMES_AT + NAME_BYTES;

/// Set while a process calls exec, until the new program has loaded the library.
const BECOMING: u32 = 1 << 31;

/// Prefix of the file names of tables; the process id of the monitor follows.
const PREFIX: &str = "counters-of-";

/// The age at which an empty table counts as abandoned.
const NEW: Duration = Duration::from_secs(60);

/// A table and its file.
pub(super) struct Table {
    file: File,
    pub(super) path: PathBuf,
}

/// The first words of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Number of used rows, including those of [`KINDS`].
    files: u64,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    /// Number of processes that shared a slot with a living process.
    pub(super) collisions: u64,
    /// Bytes read and written that the kernel's own counts lack.
    pub(super) uncounted: [u64; 2],
}

impl Table {
    /// Creates an empty table. Its space is allocated at once: a page without space would later
    /// kill the task with a signal.
    pub(super) fn new() -> io::Result<Self> {
        let mut last = io::Error::other("there is no folder for the counters");
        for folder in library::folders() {
            match library::make_folder(&folder).and_then(|()| Self::new_in(&folder)) {
                Ok(table) => return Ok(table),
                Err(e) => last = io::Error::new(e.kind(), format!("{}: {e}", folder.display())),
            }
        }
        Err(last)
    }

    fn new_in(folder: &Path) -> io::Result<Self> {
        sweep(folder);
        // Several monitors may run in one process, one after the other or at the same time.
        for n in 0..u32::MAX {
            let path = folder.join(format!("{PREFIX}{}-{n}", std::process::id()));
            let mut options = OpenOptions::new();
            match options.read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
                Ok(file) => {
                    let table = Self { file, path };
                    flock(&table.file, FlockOperation::NonBlockingLockExclusive)?;
                    fallocate(&table.file, FallocateFlags::empty(), 0, BYTES)?;
                    table.file.write_all_at(&(KINDS.len() as u64).to_ne_bytes(), 8)?;
                    table.file.write_all_at(&MAGIC.to_ne_bytes(), 0)?;
                    return Ok(table);
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(super) fn header(&self) -> io::Result<Header> {
        let block = self.block::<64>(0)?;
        Ok(Header {
            files: word(&block, 8).min(FILES),
            sent_bytes: word(&block, 24),
            received_bytes: word(&block, 32),
            collisions: word(&block, 40),
            uncounted: [48, 56].map(|at| word(&block, at)),
        })
    }

    /// Takes the counts of an exited process and frees its slot. The flag is false if the process
    /// called exec and the new program did not load the library. Returns `None` if the process
    /// never counted.
    pub(super) fn take(&self, pid: Pid) -> io::Result<Option<(ProcessFiles, bool)>> {
        let at = HEADER + u64::from(pid.unsigned_abs()) % PROCESSES * PROCESS as u64;
        let block = self.block::<PROCESS>(at)?;
        let word = |at| word(&block, at);
        if half(&block, 0) != pid.unsigned_abs() {
            return Ok(None);
        }
        self.file.write_all_at(&0u32.to_ne_bytes(), at)?;
        let is_seen = half(&block, 4) & BECOMING == 0;
        let process = ProcessFiles {
            pid,
            command: String::new(),
            opens: word(8),
            reads: word(16),
            writes: word(24),
            read_bytes: word(32) + word(48),
            written_bytes: word(40) + word(56),
        };
        Ok(Some((process, is_seen)))
    }

    /// Returns all files that were used, including the rows of [`KINDS`].
    pub(super) fn files(&self) -> io::Result<Vec<FileUse>> {
        let mut files = Vec::new();
        for n in 0..self.header()?.files {
            let block = self.block::<FILE>(FILES_AT + n * FILE as u64)?;
            let path = match KINDS.get(n as usize) {
                Some(_) => String::new(),
                None => self.name(half(&block, 24), half(&block, 28))?,
            };
            let file = file_use(&block, KINDS.get(n as usize).copied().unwrap_or("file"), path);
            // Two processes may have taken rows for the same file; the second row stays empty.
            if file.is_used() {
                files.push(file);
            }
        }
        Ok(files)
    }

    fn name(&self, at: u32, bytes: u32) -> io::Result<String> {
        let (at, bytes) = (u64::from(at), u64::from(bytes));
        if at + bytes > NAME_BYTES {
            return Ok(String::new());
        }
        let mut name = vec![0; bytes as usize];
        self.file.read_exact_at(&mut name, NAMES_AT + at)?;
        Ok(String::from_utf8_lossy(&name).into_owned())
    }

    /// Returns all peers.
    pub(super) fn peers(&self) -> io::Result<Vec<PeerUse>> {
        let mut peers: Vec<PeerUse> = Vec::new();
        for n in 0..PEERS {
            let block = self.block::<PEER>(PEERS_AT + n * PEER as u64)?;
            let word = |at| word(&block, at);
            let quarter = |at: usize| u16_at(&block, at).unwrap_or(0);
            let mut peer = PeerUse {
                address: address(quarter(4), &block[8..24]),
                port: quarter(6),
                connections: word(24),
                sent_bytes: word(32),
                received_bytes: word(40),
                sends: word(48),
                receives: word(56),
            };
            if n == PEERS - 1 {
                "others".clone_into(&mut peer.address);
            }
            if peer.connections + peer.sends + peer.receives == 0 {
                continue;
            }
            // Two simultaneous connections may have taken two rows.
            match peers.iter_mut().find(|p| (&p.address, p.port) == (&peer.address, peer.port)) {
                Some(same) => same.add(&peer),
                None => peers.push(peer),
            }
        }
        Ok(peers)
    }

    fn block<const N: usize>(&self, at: u64) -> io::Result<[u8; N]> {
        let mut block = [0; N];
        self.file.read_exact_at(&mut block, at)?;
        Ok(block)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // A process that still counts keeps its mapping.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the tables of killed monitors.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else { continue };
        let is_left = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        // A new table that is not locked yet is empty and young.
        let is_begun = |about: fs::Metadata| {
            about.len() > 0
                || about.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > NEW))
        };
        if is_left && file.metadata().is_ok_and(is_begun) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn word(block: &[u8], at: usize) -> u64 {
    u64_at(block, at).unwrap_or(0)
}

fn half(block: &[u8], at: usize) -> u32 {
    u32_at(block, at).unwrap_or(0)
}

fn address(family: u16, bytes: &[u8]) -> String {
    let Ok(all) = <[u8; 16]>::try_from(bytes) else { return String::new() };
    match i32::from(family) {
        libc::AF_INET => IpAddr::from([all[0], all[1], all[2], all[3]]).to_string(),
        libc::AF_INET6 => Ipv6Addr::from(all).to_string(),
        libc::AF_UNIX => "unix".to_owned(),
        other => format!("family {other}"),
    }
}

fn file_use(block: &[u8], kind: &str, path: String) -> FileUse {
    let word = |at| word(block, at);
    let sizes = |at: usize| -> Vec<u64> { (0..SIZES).map(|n| word(at + 8 * n)).collect() };
    let (read_sizes, write_sizes) = (sizes(96), sizes(96 + 8 * SIZES));
    FileUse {
        path,
        kind: kind.to_owned(),
        device: word(0),
        inode: word(8),
        opens: word(32),
        closes: word(40),
        reads: read_sizes.iter().sum(),
        writes: write_sizes.iter().sum(),
        read_bytes: word(48) + word(64),
        written_bytes: word(56) + word(72),
        read_or_written_bytes: 0,
        stream_read_bytes: word(64),
        stream_written_bytes: word(72),
        read_sizes: trim_zeros(read_sizes),
        write_sizes: trim_zeros(write_sizes),
        maps: word(80),
        mapped_bytes: word(88),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_matches_that_of_the_library() {
        // The library asserts the same number.
        assert_eq!(BYTES, 10_813_952);
    }

    #[test]
    fn tables_of_killed_monitors_are_removed_and_used_ones_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let used = Table::new_in(folder.path()).expect("a table");
        let left = folder.path().join(format!("{PREFIX}1-0"));
        fs::write(&left, "left").expect("written");
        // A table of a monitor killed before it allocated space, and one that is being created.
        let (empty, new) =
            (["2-0", "3-0"]).map(|n| folder.path().join(format!("{PREFIX}{n}"))).into();
        let long_ago = std::time::SystemTime::now() - 2 * NEW;
        File::create(&empty).and_then(|file| file.set_modified(long_ago)).expect("made");
        File::create(&new).expect("made");
        let other = Table::new_in(folder.path()).expect("a table");
        assert!(used.path.exists() && other.path.exists() && !left.exists());
        assert!(new.exists() && !empty.exists());
        let header = used.header().expect("read");
        assert_eq!((header.files, header.sent_bytes), (KINDS.len() as u64, 0));
        assert_eq!(used.take(7).expect("read"), None);
        assert!(used.files().expect("read").is_empty() && used.peers().expect("read").is_empty());
        let path = used.path.clone();
        drop(used);
        assert!(!path.exists());
    }
}
