use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Reasons for which stored records cannot be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process writes to this folder.
    #[error("another process writes to {0}")]
    Busy(PathBuf),
    /// The operating system returned an error.
    #[error("{path}: {doing}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed.
        doing: &'static str,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A file is damaged, or is not what its name says.
    #[error("{path} is damaged: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        why: String,
    },
    /// The caller passed something that the file cannot have.
    #[error("{path}: refused: {why}")]
    Refused {
        /// The file or folder.
        path: PathBuf,
        /// The reason, for people.
        why: String,
    },
    /// A later version of Skopos wrote the file.
    #[error("{path} has layout {found}, and this program knows {known}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: u32,
        /// Latest layout that this program knows.
        known: u32,
    },
}

impl Error {
    pub(crate) fn damaged(path: &Path, why: &dyn std::fmt::Display) -> Self {
        Self::Damaged { path: path.to_path_buf(), why: why.to_string() }
    }

    pub(crate) fn refused(path: &Path, why: &dyn std::fmt::Display) -> Self {
        Self::Refused { path: path.to_path_buf(), why: why.to_string() }
    }

    pub(crate) fn newer(path: &Path, found: u32) -> Self {
        Self::Newer { path: path.to_path_buf(), found, known: super::frame::LAYOUT }
    }

    /// Returns true if a file is damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }

    /// Returns the damage of a damaged file, else the whole error.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Damaged { why, .. } => why.clone(),
            other => other.to_string(),
        }
    }

    /// Returns true if the file does not exist: retention or sealing has removed it.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Turns an error of the operating system into the error of an action on `path`.
pub(crate) fn io_at(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::Io { path, doing, source }
}
