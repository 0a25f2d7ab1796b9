//! Damaged files are moved aside, so that everything else goes on and nothing that can still be read by hand is lost.

use std::fmt;
use std::path::Path;

use super::disk::Disk;
use super::error::{Error, io_at};

/// The name of the folder of damaged files, beside the others.
pub(crate) const FOLDER: &str = "quarantine";

/// A damaged file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Damage {
    /// Name of the file.
    pub file: String,
    /// The damage, for people.
    pub why: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged: {}", self.file, self.why)
    }
}

/// Moves a file of `folder` to its quarantine.
pub(crate) fn quarantine(disk: &dyn Disk, folder: &Path, name: &str) -> Result<(), Error> {
    let aside = folder.join(FOLDER);
    let (from, to) = (folder.join(name), aside.join(name));
    let moved = disk
        .make_folder(&aside)
        .and_then(|()| disk.sync_folder(folder))
        .and_then(|()| disk.rename(&from, &to))
        .and_then(|()| disk.sync_folder(&aside))
        .and_then(|()| disk.sync_folder(folder));
    moved.map_err(io_at(&from, "it cannot be moved to the quarantine"))
}
