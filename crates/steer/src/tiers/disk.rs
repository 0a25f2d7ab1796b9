//! The two operations whose order decides which files are there after a loss of power.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Removes files, and makes removals durable. Tests have one that loses removals which were not synced.
pub(super) trait Disk: Debug + Send + Sync {
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable: files that were renamed into it, and removals.
    fn sync(&self, folder: &Path) -> io::Result<()>;
}

/// The file system.
#[derive(Debug)]
pub(super) struct FileSystem;

impl Disk for FileSystem {
    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}
