//! A folder of its own for the sockets of a case.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// A private folder, which is removed with all that is in it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Folder {
    /// Makes a folder among the temporary files, for this user only.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new() -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("skopos-dataservice-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(|source| Error::Path {
            path: path.clone(),
            doing: "make a folder for sockets",
            source,
        })?;
        Ok(Self { path })
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed stays among the temporary files; it is empty of secrets.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
