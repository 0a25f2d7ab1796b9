//! A directory for a run, which is removed at its end.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use skopos_term::Failure;

/// The prefix of its name; the process id follows, and `-disk` for a directory on disk.
const PREFIX: &str = "skopos-bench-";

/// The folder for directories in memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// A private directory, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes it in memory, and removes the directories of runs that were killed.
    pub(crate) fn new() -> Result<Self, Failure> {
        let shared_memory = Path::new(SHARED_MEMORY);
        if shared_memory.is_dir() {
            Self::within(shared_memory, "")
        } else {
            Self::within(&std::env::temp_dir(), "")
        }
    }

    /// Makes it in the directory for temporary files, for large files and for programs.
    pub(crate) fn on_disk() -> Result<Self, Failure> {
        Self::within(&std::env::temp_dir(), "-disk")
    }

    fn within(parent: &Path, kind: &str) -> Result<Self, Failure> {
        remove(parent, |pid| !Path::new(&format!("/proc/{pid}")).exists());
        let path = parent.join(format!("{PREFIX}{}{kind}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| Failure::new(format!("cannot create {}", path.display())).because(&e))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A new directory in it.
    pub(crate) fn dir(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| Failure::new(format!("cannot create {}", path.display())).because(&e))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the directories of this process, also those that are in use: the process is about to end.
pub(crate) fn remove_own() {
    let (own, temporary) = (std::process::id(), std::env::temp_dir());
    for parent in [Path::new(SHARED_MEMORY), temporary.as_path()] {
        remove(parent, |pid| pid == own);
    }
}

/// Removes the directories of the processes that `is_meant` accepts.
fn remove(parent: &Path, is_meant: impl Fn(u32) -> bool) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|n| n.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        // The directory of another user cannot be removed.
        if pid.is_some_and(&is_meant) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
