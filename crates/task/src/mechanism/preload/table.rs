//! The table that the library counts in, as `preload/table.h` lays it out. It is read as a file: what the
//! processes share is a mapping of the same pages.
//!
//! | at | what |
//! |---|---|
//! | 0 | magic, files, bytes of names, bytes sent, bytes received, processes that shared a slot |
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

/// It became another program, which has not said that it counts.
const BECOMING: u32 = 1 << 31;

/// Files that are none: what found no place, pipes, descriptors without a name, sockets.
const KINDS: [&str; 4] = ["others", "pipes", "nameless", "sockets"];

/// The files of tables begin like this; the process id of the monitor follows.
const PREFIX: &str = "counters-of-";

/// An empty table that is older than this is nobody's any more.
const NEW: Duration = Duration::from_secs(60);

/// A table, and the file that it is.
pub(super) struct Table {
    file: File,
    pub(super) path: PathBuf,
}

/// The first words of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Places that were taken, [`KINDS`] included.
    files: u64,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    /// Processes that shared a slot with one that still lived.
    pub(super) collisions: u64,
}

impl Table {
    /// Makes an empty one. Its space is taken at once: a page that found no room later would end the
    /// task with a signal.
    pub(super) fn new() -> io::Result<Self> {
        let mut last = io::Error::other("there is no folder for its counters");
        for folder in library::folders() {
            match library::make(&folder).and_then(|()| Self::new_in(&folder)) {
                Ok(table) => return Ok(table),
                Err(e) => last = io::Error::new(e.kind(), format!("{}: {e}", folder.display())),
            }
        }
        Err(last)
    }

    fn new_in(folder: &Path) -> io::Result<Self> {
        sweep(folder);
        // Several monitors may run in one process, one after the other or side by side.
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
        let block = self.block::<48>(0)?;
        Ok(Header {
            files: word(&block, 8).min(FILES),
            sent_bytes: word(&block, 24),
            received_bytes: word(&block, 32),
            collisions: word(&block, 40),
        })
    }

    /// What a process counted that has ended, once: its place is free then; and whether it counted to
    /// its end, rather than become a program that does not. `None` if it never did.
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

    /// All files that were used, and those that are none.
    pub(super) fn files(&self) -> io::Result<Vec<FileUse>> {
        let mut files = Vec::new();
        for n in 0..self.header()?.files {
            let block = self.block::<FILE>(FILES_AT + n * FILE as u64)?;
            let path = match KINDS.get(n as usize) {
                Some(_) => String::new(),
                None => self.name(half(&block, 24), half(&block, 28))?,
            };
            let file = file_use(&block, KINDS.get(n as usize).copied().unwrap_or("file"), path);
            // Two processes may have taken places for one file; the second is empty.
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

    /// Addresses that were talked to.
    pub(super) fn peers(&self) -> io::Result<Vec<PeerUse>> {
        let mut peers: Vec<PeerUse> = Vec::new();
        for n in 0..PEERS {
            let block = self.block::<PEER>(PEERS_AT + n * PEER as u64)?;
            let word = |at| word(&block, at);
            let quarter = |at: usize| u16::from_ne_bytes([block[at], block[at + 1]]);
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
            // Two that came at one moment may have taken two places.
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
        // Whoever still counts in it goes on with its mapping.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes tables whose monitor was killed.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else { continue };
        let is_left = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        // A new one that is not locked yet is empty, and a moment old.
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
    let bytes = block.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_ne_bytes)
}

fn half(block: &[u8], at: usize) -> u32 {
    let bytes = block.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_ne_bytes)
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
        read_sizes: trimmed(read_sizes),
        write_sizes: trimmed(write_sizes),
        maps: word(80),
        mapped_bytes: word(88),
    }
}

/// Without the zeros at its end.
fn trimmed(mut sizes: Vec<u64>) -> Vec<u64> {
    sizes.truncate(sizes.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1));
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_long_as_the_library_wants() {
        // The library's own assertion has the same number.
        assert_eq!(BYTES, 10_813_952);
    }

    #[test]
    fn what_a_killed_monitor_left_goes_and_what_is_used_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let used = Table::new_in(folder.path()).expect("a table");
        let left = folder.path().join(format!("{PREFIX}1-0"));
        fs::write(&left, "left").expect("written");
        // One that was killed before it had any space, and one that is being made.
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
