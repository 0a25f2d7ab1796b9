//! Ways of input and output that the kernel's byte counts leave out: which of them a task used, as far as
//! that can be seen.
//!
//! The maps of a process show files that it mapped, and the rings of `io_uring` and `io_submit`. They are
//! looked at now and then, so what a process maps for a moment is missed. Its trace may remain: storage then
//! moved more for the task than its system calls explain.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;

use skopos_model::task::Missing;

use crate::sys::Pid;

/// The least size of the mappings of a file by which a process is taken to read it. Smaller ones hold
/// tables of libraries: character sets, locales, time zones.
const MIN_MAPPED_BYTES: u64 = 1 << 20;

/// Folders of the C library's own tables, which every program maps.
const LIBRARY_TABLES: [&str; 2] = ["/usr/lib/locale/", "/usr/share/locale/"];

/// Files below these are devices and memory.
const NOT_FILES: [&str; 3] = ["/dev/", "/memfd:", "/SYSV"];

/// The ways that were seen, for bytes read and for bytes written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unseen {
    pub(crate) read: BTreeSet<Missing>,
    pub(crate) written: BTreeSet<Missing>,
}

impl Unseen {
    /// Reads the maps of a process.
    pub(crate) fn of(pid: Pid) -> Self {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&maps))
    }

    fn parse(maps: &str) -> Self {
        let mut found = Self::default();
        let mut programs: HashSet<&str> = HashSet::new();
        let mut mapped: HashMap<&str, u64> = HashMap::new();
        for line in maps.lines() {
            // "7f0c-7f0d rw-s 00000000 fe:00 1234   /a/file": the name is the rest, and may have blanks.
            let mut words = line.splitn(6, ' ');
            let (Some(range), Some(mode)) = (words.next(), words.next()) else { continue };
            let name = words.nth(3).unwrap_or_default().trim();
            if name.contains("[io_uring]") {
                found.both(Missing::IoUring);
            } else if name.contains("[aio]") {
                found.both(Missing::Aio);
            } else if !name.starts_with('/') || NOT_FILES.iter().any(|at| name.starts_with(at)) {
                continue;
            } else if mode.contains('x') {
                programs.insert(name);
            } else {
                if mode.starts_with("rw") && mode.ends_with('s') {
                    found.written.insert(Missing::Mmap);
                }
                *mapped.entry(name).or_default() += bytes_of(range);
            }
        }
        let is_data = |(name, bytes): (&&str, &u64)| {
            let is_table = LIBRARY_TABLES.iter().any(|at| name.starts_with(at));
            *bytes >= MIN_MAPPED_BYTES && !is_table && !programs.contains(name)
        };
        if mapped.iter().any(is_data) {
            found.read.insert(Missing::Mmap);
        }
        found
    }

    fn both(&mut self, way: Missing) {
        self.read.insert(way);
        self.written.insert(way);
    }

    /// Adds what was seen of another process.
    pub(crate) fn merge(&mut self, other: Self) {
        self.read.extend(other.read);
        self.written.extend(other.written);
    }

    /// Returns true if nothing was seen.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.read.is_empty() && self.written.is_empty()
    }
}

/// Returns the length of a range such as `7f0c1000-7f0c3000`.
fn bytes_of(range: &str) -> u64 {
    let ends = range.split_once('-').map(|(from, to)| [from, to]);
    let ends = ends.map(|ends| ends.map(|end| u64::from_str_radix(end, 16).unwrap_or(0)));
    ends.map_or(0, |[from, to]| to.saturating_sub(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_and_rings_are_told_from_libraries() {
        let check = |maps: &str, read: &[Missing], written: &[Missing]| {
            let found = Unseen::parse(maps);
            assert_eq!(found.read.into_iter().collect::<Vec<_>>(), read, "{maps}");
            assert_eq!(found.written.into_iter().collect::<Vec<_>>(), written, "{maps}");
        };
        let line = |range: &str, mode: &str, name: &str| {
            format!("{range} {mode} 00000000 fe:00 1234                       {name}\n")
        };
        let (large, small) = ("10000000-10400000", "10000000-10001000");
        check(&line(large, "r--p", "/data/a b"), &[Missing::Mmap], &[]);
        check(&line(small, "r--p", "/data/a"), &[], &[]);
        check(&line(small, "rw-s", "/data/a"), &[], &[Missing::Mmap]);
        check(&line(large, "rw-s", "/data/a"), &[Missing::Mmap], &[Missing::Mmap]);
        // A library has a part that is executed.
        let library = line(large, "r--p", "/l.so") + &line("10400000-10500000", "r-xp", "/l.so");
        check(&library, &[], &[]);
        check(&line(large, "r--p", "/usr/lib/locale/locale-archive"), &[], &[]);
        for name in ["/dev/shm/x", "/memfd:x (deleted)", "/SYSV00000000 (deleted)", "[heap]", ""] {
            check(&line(large, "rw-s", name), &[], &[]);
        }
        let ring = line(small, "rw-s", "anon_inode:[io_uring]");
        check(&ring, &[Missing::IoUring], &[Missing::IoUring]);
        check(&line(small, "rw-s", "/[aio] (deleted)"), &[Missing::Aio], &[Missing::Aio]);
        check("", &[], &[]);
    }
}
