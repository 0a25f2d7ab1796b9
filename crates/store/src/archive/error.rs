use std::path::{Path, PathBuf};

/// Reasons for which the archive cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not exist.
    #[error("there is no archive {0}")]
    Missing(PathBuf),
    /// The file is not an archive of tasks.
    #[error("{0} is not an archive of tasks")]
    NotAnArchive(PathBuf),
    /// A later version of Skopos wrote the file.
    #[error("{path} has version {found} of the archive's format, and this program knows {known}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version of its format.
        found: i64,
        /// Latest version that this program knows.
        known: i64,
    },
    /// SQLite returned an error.
    #[error("{path}: {doing}")]
    Sql {
        /// The file.
        path: PathBuf,
        /// The action that failed.
        doing: &'static str,
        /// SQLite's error.
        #[source]
        source: rusqlite::Error,
    },
}

/// Returns the error of an action on the archive at `path`.
pub(super) fn sql_error(path: &Path, doing: &'static str, source: rusqlite::Error) -> Error {
    Error::Sql { path: path.to_owned(), doing, source }
}
