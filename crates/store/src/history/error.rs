use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why history cannot be kept or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process keeps history in this folder.
    #[error("another process keeps its history in {0}")]
    Busy(PathBuf),
    /// The operating system says no.
    #[error("{path}: {doing}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// A file is not what its name says.
    #[error("{path} is no history: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A later version of Skopos has written it.
    #[error("{path} has layout {found}, and this program knows {known}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: u32,
        /// The latest that is known here.
        known: u32,
    },
}

impl Error {
    /// Whether the file is not there: retention or sealing came first.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// What to do with an error of the operating system at `path`.
pub(super) fn io_at(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::Io { path, doing, source }
}
