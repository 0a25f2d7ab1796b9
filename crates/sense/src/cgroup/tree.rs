//! Hierarchies and their groups: their folders and files.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::files::{SOURCES, Source};
use crate::facts::Facts;
use crate::mounts;

/// A mounted tree of groups.
pub(super) struct Hierarchy {
    pub(super) point: CString,
    /// The sources of its controllers.
    pub(super) sources: Vec<&'static Source>,
}

pub(super) struct Group {
    pub(super) hierarchy: usize,
    pub(super) folder: CString,
    pub(super) depth: usize,
    pub(super) facts: Facts,
    pub(super) files: Vec<GroupFile>,
    /// `st_nlink` when the children were last listed.
    pub(super) links_when_listed: Option<u64>,
    pub(super) children_left_out: u64,
    /// Its limits and peaks were read at least once.
    pub(super) has_slow_facts: bool,
}

pub(super) struct GroupFile {
    pub(super) source: &'static Source,
    /// `None` if it is opened for each reading.
    pub(super) kept: Option<File>,
}

impl Group {
    pub(super) fn has_cpu_time(&self) -> bool {
        self.files.iter().any(|f| f.source.is_cpu_time)
    }
}

pub(super) fn open(folder: &CStr, file: &str, path: &mut Vec<u8>) -> io::Result<OwnedFd> {
    path.clear();
    path.extend_from_slice(folder.to_bytes());
    path.push(b'/');
    path.extend_from_slice(file.as_bytes());
    path.push(0);
    let path = CStr::from_bytes_with_nul(path).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

pub(super) fn children(folder: &CStr) -> Vec<CString> {
    let path = Path::new(OsStr::from_bytes(folder.to_bytes()));
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let is_folder = |e: &fs::DirEntry| e.file_type().is_ok_and(|kind| kind.is_dir());
    entries
        .filter_map(|entry| entry.ok().filter(is_folder))
        .filter_map(|entry| CString::new(entry.path().as_os_str().as_bytes()).ok())
        .collect()
}

pub(super) fn hierarchies(mountinfo: &[u8]) -> Vec<Hierarchy> {
    let mut devices: Vec<&[u8]> = Vec::new();
    let mut found = Vec::new();
    for mount in mounts::visible(mountinfo) {
        let has = |controller: &str| match (mount.kind, controller) {
            (b"cgroup2", "") => true,
            (b"cgroup", name) if !name.is_empty() => {
                mount.options.split(|&b| b == b',').any(|option| option == name.as_bytes())
            }
            _ => false,
        };
        let sources: Vec<_> = SOURCES.iter().filter(|s| has(s.v1_controller)).collect();
        let Ok(point) = CString::new(mount.point.as_slice()) else { continue };
        // One hierarchy may be mounted at several points.
        if !sources.is_empty() && !devices.contains(&mount.device) {
            devices.push(mount.device);
            found.push(Hierarchy { point, sources });
        }
    }
    // v2 comes first: its times are exact, and one file holds all of them.
    found.sort_by_key(|hierarchy| !hierarchy.sources.iter().any(|s| s.v1_controller.is_empty()));
    found
}
