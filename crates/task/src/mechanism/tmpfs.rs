//! Memory in files of tmpfs: `/dev/shm`, `memfd_create`, a `/tmp` in memory. It belongs to no process, so no
//! resident size contains what was written there.
//!
//! A file is found while a process of the task has it open, and counts until its last name and descriptor
//! are gone. A file that is older than the task counts by its growth only. A file that is opened and closed
//! between two looks is missed.
//!
//! Nothing is asked of other file systems: a dead file server would keep the monitor waiting.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};

use crate::sys::Pid;

/// The unit of `stx_blocks`.
const BLOCK_BYTES: u64 = 512;

/// The most descriptors of one process that a look reads: more are sockets of a server.
const MAX_DESCRIPTORS: usize = 1024;

/// The most files that are remembered. More would be a database in memory; those beyond are not counted.
const MAX_FILES: usize = 65_536;

/// A file system and a file in it.
type Key = (u32, u32, u64);

/// The files that the task has made or made larger.
pub(super) struct TmpfsFiles {
    started: SystemTime,
    files: HashMap<Key, File>,
    /// The mount points, the longest first, each with true if it is one of tmpfs.
    mounts: Vec<(PathBuf, bool)>,
}

#[derive(Debug)]
struct File {
    /// Its name when it was found; a removed file has its former name.
    path: PathBuf,
    /// Its bytes that are not the task's.
    before: u64,
    bytes: u64,
    /// A process had it open at the last look.
    is_open: bool,
}

impl TmpfsFiles {
    /// Creates an empty list. Files that were made before this moment are older than the task.
    pub(super) fn new() -> Self {
        Self { started: SystemTime::now(), files: HashMap::new(), mounts: Vec::new() }
    }

    /// Looks at the descriptors of processes. Returns the bytes of all files that still exist.
    pub(super) fn look(&mut self, pids: &[Pid]) -> u64 {
        self.files.values_mut().for_each(|file| file.is_open = false);
        self.mounts = mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
        for pid in pids {
            let all = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            for entry in all.take(MAX_DESCRIPTORS) {
                self.look_at(&entry.path());
            }
        }
        self.files.retain(|key, file| file.is_open || still_there(*key, file));
        self.files.values().map(|file| file.bytes.saturating_sub(file.before)).sum()
    }

    fn look_at(&mut self, link: &Path) {
        let Ok(path) = fs::read_link(link) else { return };
        if !self.is_in_memory(&path) {
            return;
        }
        let is_file = |about: &Statx| u32::from(about.stx_mode) & libc::S_IFMT == libc::S_IFREG;
        let Some(about) = about(link).filter(is_file) else { return };
        let device = (about.stx_dev_major, about.stx_dev_minor);
        let key = (device.0, device.1, about.stx_ino);
        if self.files.len() >= MAX_FILES && !self.files.contains_key(&key) {
            return;
        }
        let bytes = about.stx_blocks * BLOCK_BYTES;
        let before = if self.is_made_since(&about) { 0 } else { bytes };
        let new = || File { path, before, bytes, is_open: true };
        let file = self.files.entry(key).or_insert_with(new);
        (file.bytes, file.is_open) = (bytes, true);
    }

    /// True for the name of a file of tmpfs. Sockets and pipes have names such as `pipe:[7]`.
    fn is_in_memory(&self, path: &Path) -> bool {
        if path.as_os_str().as_bytes().starts_with(MEMFD) {
            return true;
        }
        let mount = self.mounts.iter().find(|(point, _)| path.starts_with(point));
        path.has_root() && mount.is_some_and(|(_, is_tmpfs)| *is_tmpfs)
    }

    /// True if a file was made after the task began. If the file system does not tell, it is taken to be
    /// older.
    fn is_made_since(&self, about: &Statx) -> bool {
        let tells = StatxFlags::from_bits_retain(about.stx_mask).contains(StatxFlags::BTIME);
        let begun = self.started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // The clock of file systems lags by a tick; whole seconds are compared.
        tells && about.stx_btime.tv_sec.max(0).unsigned_abs() >= begun
    }
}

/// The beginning of the name of a file that `memfd_create` made.
const MEMFD: &[u8] = b"/memfd:";

/// Returns the mount points of a list of mounts, the longest first.
fn mounts(list: &str) -> Vec<(PathBuf, bool)> {
    // "36 35 0:31 / /dev/shm rw shared:8 - tmpfs shm rw"; a blank in a name is `\040`.
    let mount = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?.replace("\\040", " ");
        Some((PathBuf::from(point), right.split(' ').next() == Some("tmpfs")))
    };
    let mut found: Vec<(PathBuf, bool)> = list.lines().filter_map(mount).collect();
    // Of two at one point the later one is seen: it comes first after the reversal.
    found.reverse();
    found.sort_by_key(|(point, _)| std::cmp::Reverse(point.as_os_str().len()));
    found
}

/// Looks at a file by its name; false if another file has the name, or no file has it.
fn still_there(key: Key, file: &mut File) -> bool {
    let now = about(&file.path);
    let same = now.filter(|now| (now.stx_dev_major, now.stx_dev_minor, now.stx_ino) == key);
    if let Some(now) = &same {
        file.bytes = now.stx_blocks * BLOCK_BYTES;
    }
    same.is_some()
}

fn about(path: &Path) -> Option<Statx> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    statx(CWD, path.as_c_str(), AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::BTIME).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Returns a file of this size on a tmpfs; `None` where there is no tmpfs.
    fn file(bytes: usize) -> Option<tempfile::NamedTempFile> {
        let mut file = tempfile::NamedTempFile::new_in("/dev/shm").ok()?;
        let mounts = mounts(&fs::read_to_string("/proc/self/mountinfo").ok()?);
        let mount = mounts.iter().find(|(point, _)| file.path().starts_with(point))?;
        if !mount.1 {
            return None;
        }
        file.write_all(&vec![1; bytes]).ok()?;
        Some(file)
    }

    #[test]
    fn a_file_counts_while_it_exists_and_an_older_one_by_its_growth() {
        const BYTES: u64 = 1 << 20;
        let own = [std::process::id() as Pid];
        let Some(mut older) = file(BYTES as usize) else {
            return println!("skipped: there is no tmpfs at /dev/shm");
        };
        let mut tmpfs = TmpfsFiles::new();
        tmpfs.started += std::time::Duration::from_secs(3);
        // Other tests of this process may have files there, too.
        let others = tmpfs.look(&own);
        older.write_all(&vec![1; BYTES as usize]).expect("written");
        assert_eq!(tmpfs.look(&own), others + BYTES);
        tmpfs.started = UNIX_EPOCH;
        let newer = file(2 * BYTES as usize).expect("as above");
        assert_eq!(tmpfs.look(&own), others + 3 * BYTES);
        // It is closed, and has its name.
        let (_, path) = newer.keep().expect("kept");
        assert_eq!(tmpfs.look(&own), others + 3 * BYTES);
        fs::remove_file(path).expect("removed");
        assert_eq!(tmpfs.look(&own), others + BYTES);
    }

    #[test]
    fn the_innermost_mount_decides() {
        let list = "1 0 8:1 / / rw - ext4 /dev/a rw\n\
                    2 1 0:5 / /dev rw - devtmpfs none rw\n\
                    3 2 0:6 / /dev/shm rw shared:4 - tmpfs shm rw\n\
                    4 1 0:7 / /a\\040b rw - tmpfs x rw\n\
                    5 4 0:8 / /a\\040b/nfs rw - nfs4 server:/ rw\n";
        let tmpfs = TmpfsFiles { mounts: mounts(list), ..TmpfsFiles::new() };
        for (path, expected) in [
            ("/dev/shm/x", true),
            ("/dev/shm/x (deleted)", true),
            ("/memfd:x (deleted)", true),
            ("/a b/x", true),
            ("/a b/nfs/x", false),
            ("/dev/null", false),
            ("/home/x", false),
            ("pipe:[7]", false),
        ] {
            assert_eq!(tmpfs.is_in_memory(Path::new(path)), expected, "{path}");
        }
    }
}
