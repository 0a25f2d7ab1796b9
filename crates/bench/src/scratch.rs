//! A directory for a run, which is removed at its end.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use skopos_term::Failure;

/// The prefix of its name; the process id follows, and `-disk` for a directory on disk.
const PREFIX: &str = "skopos-bench-";

/// A private directory, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes it in memory, and removes the directories of runs that were killed.
    pub(crate) fn new() -> Result<Self, Failure> {
        let shared_memory = Path::new("/dev/shm");
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
        remove_abandoned(parent);
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

fn remove_abandoned(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|n| n.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        // The directory of another user cannot be removed.
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
